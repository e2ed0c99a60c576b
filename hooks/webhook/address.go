package webhook

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// refusedError is an address that is not asked. Its text is for the operator.
type refusedError struct {
	ip    netip.Addr
	plain bool
}

// Error names the address, which is not secret from who configured its name.
func (e *refusedError) Error() string {
	if e.plain {
		return fmt.Sprintf("%s is not in a network that allow names, and http reaches no other", e.ip)
	}
	return fmt.Sprintf("%s is not a public address, and not in a network that allow names", e.ip)
}

// special are the networks within IPv4, and within the public part of IPv6,
// that are no public addresses (the registries of RFC 6890), that turn into
// other addresses on their way, or that only some cloud's machines reach.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's own services, asked from within
	"2001::/23",        // Teredo, ORCHID, benchmarking and others
	"2001:db8::/32", "3fff::/20", "2002::/16", "2620:4f:8000::/48",
)

// public6 is all of IPv6 that is handed out as public. Mapped, compatible and
// translated IPv4 (64:ff9b::/96), unique local, link-local and multicast
// addresses are outside.
var public6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// guard says which addresses are dialled.
type guard struct {
	allow []netip.Prefix
	// onlyAllowed refuses public addresses too.
	onlyAllowed bool
}

// check judges ip, in whichever form it is written.
func (g guard) check(ip netip.Addr) error {
	zoned := ip.Zone() != "" // always of a link
	ip = ip.WithZone("").Unmap()
	contains := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case slices.ContainsFunc(g.allow, contains):
		return nil
	case g.onlyAllowed:
		return &refusedError{ip: ip, plain: true}
	case zoned, ip.Is6() && !public6.Contains(ip), slices.ContainsFunc(special, contains):
		return &refusedError{ip: ip}
	}
	return nil
}

// control is called with each address that is about to be dialled, after its
// name was looked up: there is nothing between this check and the connection
// that could change it.
func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial: %w", err) // a network without addresses is none that is dialled here
	}
	return g.check(to.Addr())
}
