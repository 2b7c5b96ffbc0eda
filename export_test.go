package kopf

import "net/http"

// Liveness is for the suite, which is outside of the package.
func (o *Operator) Liveness() http.Handler { return o.liveness() }
