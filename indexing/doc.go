// Package indexing is an index in memory: values under keys, which come from many
// owners and are replaced owner by owner. It knows nothing of Kubernetes.
//
// A framework holds a [Writer] and tells it what each owner has to say:
//
//	w := indexing.NewWriter[string, string]()
//	w.Replace("pod-1", map[string]string{"node-1": "10.0.0.1"})
//
// Users read its [Index]. An owner has one value for a key at most; a key has the
// values of all owners, in no particular order, equal ones included, and is there
// as long as it has any. A flat collection is an index with one key: struct{}{}.
//
// # One state at a time
//
// What an owner replaces becomes visible all at once, however many keys it has, and
// whoever ranges over an index sees one state of it to the end. An iterator can be
// kept and ranged several times; each time it begins with the state that is then.
// Readers take no locks, so that no writer keeps a reader from reading, or the other
// way round, and writing to an index from a loop over it is fine.
//
// # Knowing when to read again
//
// What is read through [Index.Tracked] is noted by the [Reader] in the context, which
// is woken when that has changed, and not by anything else. A note takes two locks
// for a moment, one of them shared with writers, which take it after an update is
// visible, for what has changed only.
//
// # Keys and values
//
// Keys are compared as those of a Go map. A key that does not equal itself, as NaN,
// could not be found again: it is not stored.
//
// Values that are equal to the stored ones are not written, and wake nobody (IDX-5).
// They are compared by ==, which for pointers means the same address; if their type
// has slices, maps, functions or interfaces in it, by [reflect.DeepEqual]. NaN, and
// functions, are not equal to themselves: a value with such in it counts as changed
// each time. Neither keys nor values are copied deeply: whoever holds one must not
// change what it points to.
//
// # Cost
//
// The values are in hash array mapped tries, which are copied where they change: along
// the way from the root, some five blocks and 2 KB for a key. A lookup goes that way,
// too: among 100,000 keys, some 40 ns for those that are asked for often, and 300 ns for one
// of which nothing is in the caches of the CPU, a third of what a Go map of maps takes. An update costs what the keys of its owner cost, however many keys,
// owners and values there are, in the index or under one of its keys. A value takes
// 120 to 200 bytes beside what the key, the value and the owner point to.
//
// Nothing of it survives a restart.
package indexing
