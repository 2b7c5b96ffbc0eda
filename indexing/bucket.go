package indexing

// bucket is the values of a key, by their owners. Most keys have one value, which is
// kept without a map then. There are no empty buckets (IDX-5), but the zero one
// stands for that of a key that is not there.
type bucket[V any] struct {
	owner Owner           // the only one
	value V               // its value
	many  *node[Owner, V] // if there are several; the above are empty then
}

// of returns the value of an owner.
func (b *bucket[V]) of(owner Owner, hash func(Owner) uint64) (value V, ok bool) {
	if b.many == nil {
		if b.owner == owner {
			return b.value, true
		}
		return value, false
	}
	if e := b.many.find(hash(owner), owner); e != nil {
		return e.value, true
	}
	return value, false
}

// with returns a bucket with a value more, or another one of an owner.
func (b *bucket[V]) with(e edition[Owner, V], owner Owner, value V) bucket[V] {
	switch {
	case b.many != nil:
		return bucket[V]{many: e.put(b.many, owner, value)}
	case b.owner == owner:
		return bucket[V]{owner: owner, value: value}
	}
	return bucket[V]{many: e.put(e.put(nil, b.owner, b.value), owner, value)}
}

// without returns a bucket without an owner, which it has. It reports false if
// nothing is left.
func (b *bucket[V]) without(e edition[Owner, V], owner Owner) (bucket[V], bool) {
	if b.many == nil {
		return bucket[V]{}, false
	}
	many := e.remove(b.many, owner)
	if many.size() == 1 {
		last := many.first()
		return bucket[V]{owner: last.key, value: last.value}, true
	}
	return bucket[V]{many: many}, true
}

// first returns one of the values, the same one each time.
func (b *bucket[V]) first() V {
	if b.many == nil {
		return b.value
	}
	return b.many.first().value
}

// each yields the values until it is told to stop.
func (b *bucket[V]) each(yield func(V) bool) bool {
	if b.many == nil {
		return yield(b.value)
	}
	return b.many.each(func(e *entry[Owner, V]) bool { return yield(e.value) })
}
