package peering

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// podVar names the pod, if its manifest says so (PEER-4).
const podVar = "POD_ID"

// Identity makes a name for this run of an operator: what POD_ID says, or else who runs it,
// where, and since when, with something random, such as me@laptop/20261130011137/a1b. It may
// ask the name server, for some seconds at most.
func Identity(ctx context.Context) string {
	return identify(ctx, machine{}, true)
}

// CommandIdentity is that of a command, the same each time: what POD_ID says, or else who
// runs it and where, such as me@laptop.
func CommandIdentity(ctx context.Context) string {
	return identify(ctx, machine{}, false)
}

// surroundings are what an identity is made of.
type surroundings interface {
	Getenv(name string) string
	User() string
	// Host is the machine's own name, Names what the name server knows it by, with
	// addresses among them or not.
	Host() string
	Names(ctx context.Context, host string) []string
	Random(n int) int
}

func identify(ctx context.Context, from surroundings, run bool) string {
	if pod := from.Getenv(podVar); pod != "" {
		return pod
	}
	host := from.Host()
	who := userName(from) + "@" + hostName(host, from.Names(ctx, host))
	if !run {
		return who
	}
	const letters = "abcdefhijklmnopqrstuvwxyz0123456789" // as Kopf's
	random := make([]byte, 3)
	for i := range random {
		random[i] = letters[from.Random(len(letters))]
	}
	return who + "/" + time.Now().UTC().Format("20060102150405") + "/" + string(random)
}

// userName looks where Python does.
func userName(from surroundings) string {
	return cmp.Or(from.Getenv("LOGNAME"), from.Getenv("USER"), from.Getenv("LNAME"), from.Getenv("USERNAME"), from.User())
}

// hostName picks the name that says most to people: one with a dot, or else one that is not
// localhost, but no address, and no name that was made of one (T159).
func hostName(own string, names []string) string {
	for _, dotted := range []bool{true, false} {
		for _, name := range names {
			name = strings.TrimSuffix(name, ".")
			_, notAddress := netip.ParseAddr(name)
			short := withoutSuffixes(name)
			if strings.Contains(name, ".") == dotted && notAddress != nil && !strings.HasSuffix(name, ".arpa") && short != "localhost" && short != "" {
				return short
			}
		}
	}
	return withoutSuffixes(own)
}

// withoutSuffixes takes off what each machine has.
func withoutSuffixes(host string) string {
	for {
		short := strings.TrimSuffix(strings.TrimSuffix(host, ".local"), ".localdomain")
		if short == host {
			return host
		}
		host = short
	}
}

// machine is the one that the process runs on.
type machine struct{}

func (machine) Getenv(name string) string { return os.Getenv(name) }
func (machine) Random(n int) int          { return rand.IntN(n) }

func (machine) User() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return strconv.Itoa(os.Getuid()) // containers often have none
}

func (machine) Host() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// namesTimeout is how long a name server may keep us waiting for a nicer name.
const namesTimeout = 3 * time.Second

func (machine) Names(ctx context.Context, host string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, namesTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil
	}
	for _, address := range addresses {
		known, err := net.DefaultResolver.LookupAddr(ctx, address)
		if err == nil {
			names = append(names, known...)
		}
	}
	return names
}
