package webhook

import (
	"time"
)

// plan says what has to be in the Secret. It is pure but for the keys that it makes.
type plan struct {
	names                         []string
	lifetime, renewBefore, settle time.Duration
	early                         float64 // of renewBefore, of this process
}

// renewal is when the successor of an authority is due.
func (p plan) renewal(a *authority) time.Time {
	before := time.Duration(float64(p.renewBefore) * (1 + p.early))
	return a.certificate.NotAfter.Add(-before)
}

// foreign tells whether what is there knows nothing of what is served from memory. That is
// never so after a renewal, by whomever: somebody has begun anew, or put back an old version.
func foreign(there, mine *content, now time.Time) bool {
	return mine != nil && !mine.ended(now) && !there.bundle.has(mine.authority.certificate)
}

func (c *content) ended(now time.Time) bool { return now.After(c.serving.tls.Leaf.NotAfter) }

// anew is the first content of all, beside what is trusted already.
func (p plan) anew(trusted bundle, now time.Time) (*content, error) {
	a, err := newAuthority(now, p.lifetime)
	if err != nil {
		return nil, err
	}
	serving, err := a.sign(p.names, now)
	return &content{authority: a, serving: serving, bundle: trusted.at(now).with(bundle{a.certificate})}, err
}

// next is what should be in the Secret. There is what is, or nil if that is nothing or
// rubbish; mine is what this process has in memory, or nil; trusted is what it has told
// clients to trust; settled tells whether clients are known to trust an authority for long
// enough. No reasons: what is there is right.
func (p plan) next(there, mine *content, trusted bundle, settled func(*authority) bool, now time.Time) (want *content, reasons []string, err error) {
	base := there
	switch {
	case there == nil && (mine == nil || mine.ended(now)):
		want, err = p.anew(trusted, now)
		return want, []string{"made anew"}, err
	case there == nil:
		base, reasons = mine, []string{"restored from memory"}
	case foreign(there, mine, now):
		base, reasons = mine, []string{"put back, as another one had taken its place"}
		trusted = trusted.with(there.bundle)
	}
	out := *base
	out.bundle = base.bundle.with(trusted).at(now)
	if out.next != nil && now.After(out.next.certificate.NotAfter) {
		out.next = nil
	}
	switch {
	case out.next != nil && (base.ended(now) || settled(out.next)):
		out.authority, out.next = out.next, nil
		out.serving, err = out.authority.sign(p.names, now)
		reasons = append(reasons, "serving certificate renewed")
	case base.ended(now):
		var fresh *content
		if fresh, err = p.anew(out.bundle, now); err == nil {
			out, reasons = *fresh, append(reasons, "made anew, as it had ended")
		}
	case !covers(base.serving.tls.Leaf, p.names):
		out.serving, err = out.authority.sign(namesOf(base.serving.tls.Leaf, p.names), now)
		reasons = append(reasons, "made for other names")
	case out.next == nil && !now.Before(p.renewal(out.authority)):
		if out.next, err = newAuthority(now, p.lifetime); err == nil {
			out.bundle = out.bundle.with(bundle{out.next.certificate})
		}
		reasons = append(reasons, "authority renewed")
	}
	if len(reasons) == 0 && (!out.bundle.equal(base.bundle) || out.next != base.next) {
		reasons = append(reasons, "bundle corrected")
	}
	return &out, reasons, err
}

// wake is when there is something to do that nobody tells of; since is when all clients
// began to trust the next authority, zero if they are not known to.
func (p plan) wake(c *content, since time.Time) time.Time {
	at := c.serving.tls.Leaf.NotAfter.Add(time.Second)
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if c.next == nil {
		sooner(p.renewal(c.authority))
	} else if !since.IsZero() {
		sooner(since.Add(p.settle))
	}
	for _, certificate := range c.bundle {
		sooner(certificate.NotAfter.Add(time.Second))
	}
	return at
}
