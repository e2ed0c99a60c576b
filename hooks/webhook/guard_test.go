package webhook

import (
	"net/netip"
	"testing"
)

func TestPublicAddressesAreAsked(t *testing.T) {
	t.Parallel()
	inside := guard{allow: prefixes("10.1.0.0/16", "fd00:1::/32")}
	for address, want := range map[string]bool{
		"1.1.1.1": true, "93.184.216.34": true, "172.15.255.255": true, "172.32.0.1": true, "100.63.0.1": true, "100.128.0.1": true, "2606:4700::1": true,
		"::ffff:93.184.216.34": true, "10.1.2.3": true, "::ffff:10.1.2.3": true, "fd00:1::5": true,
		"10.2.0.1": false, "::ffff:10.2.0.1": false, "fd00:2::5": false, "2606:4700::1%eth0": false,
	} {
		if err := inside.check(netip.MustParseAddr(address)); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := inside.control(t.Context(), "unix", "/run/policy.sock", nil); err == nil {
		t.Error("a socket without an address is dialled")
	}
}

// TestNoProxyIsAsked: it would look up names itself, and dial what it finds.
func TestNoProxyIsAsked(t *testing.T) {
	t.Parallel()
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{ID: "policy", URL: "https://policy.example", Gates: gateNames, Secrets: []Secret{secret}})
	if err != nil {
		t.Fatal(err)
	}
	if w.transport.Proxy != nil {
		t.Error("there is a proxy")
	}
}
