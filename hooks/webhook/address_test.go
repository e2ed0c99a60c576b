package webhook_test

import (
	"context"
	"encoding/binary"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
)

// certificate is what a server of a test proves itself with.
func certificate(t testing.TB, s *httptest.Server) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// names is a resolver for which every name has the addresses that it is told,
// for one lookup after the other; the last ones stay.
func names(lookups ...[]string) *net.Resolver {
	var asked atomic.Int64
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { // until who asked closes its end
			defer func() { _ = server.Close() }()
			for {
				var length [2]byte
				if _, err := io.ReadFull(server, length[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length[:]))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				// A lookup of a name is a query for IPv4 and one for IPv6.
				n := min(int(asked.Add(1)-1)/2, len(lookups)-1)
				reply := resolved(query, lookups[n])
				if _, err := server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

// resolved is the answer to a DNS query for one name: those of the addresses
// that are of the family which is asked for.
func resolved(query []byte, addresses []string) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	question := query[12 : end+5]
	family := binary.BigEndian.Uint16(query[end+1:])
	var answers []byte
	n := 0
	for _, a := range addresses {
		ip := netip.MustParseAddr(a)
		if ip.Is4() != (family == 1) || family != 1 && family != 28 {
			continue
		}
		n++
		answers = append(answers, 0xc0, 12)
		answers = binary.BigEndian.AppendUint16(answers, family)
		answers = append(answers, 0, 1, 0, 0, 0, 0, 0, byte(len(ip.AsSlice())))
		answers = append(answers, ip.AsSlice()...)
	}
	reply := append([]byte{query[0], query[1], 0x85, 0x80, 0, 1, 0, byte(n), 0, 0, 0, 0}, question...)
	return append(reply, answers...)
}

// port is that of a URL.
func port(t testing.TB, url string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(url[strings.LastIndex(url, "/")+1:])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestURLsThatAreNotPublicAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://169.254.169.254/":       "http only reaches",
		"https://169.254.169.254/":      "169.254.169.254 is not a public address",
		"http://127.0.0.1:5432":         "http only reaches",
		"https://127.0.0.1:5432":        "127.0.0.1 is not a public address",
		"http://10.0.0.1":               "http only reaches",
		"https://10.0.0.1":              "10.0.0.1 is not a public address",
		"http://[::1]":                  "http only reaches",
		"https://[::1]":                 "::1 is not a public address",
		"https://[::ffff:10.0.0.1]":     "10.0.0.1 is not a public address",
		"https://[fe80::1%25eth0]":      "fe80::1 is not a public address",
		"http://policy.example":         "http only reaches",
		"file:///etc/passwd":            "must begin with https://",
		"https:///gate":                 "must begin with https://",
		"https://:443/gate":             "must begin with https://",
		"https:policy.example":          "must begin with https://",
		"//policy.example":              "must begin with https://",
		"policy.example":                "must begin with https://",
		"":                              "must begin with https://",
		"gopher://policy.example":       "must begin with https://",
		"unix:///run/policy.sock":       "must begin with https://",
		"http://user:pw@policy.example": "must not hold a user or password",
		"https://user@policy.example":   "must not hold a user or password",
		"https://policy.example/#a":     "must not have a fragment",
		"https://policy.example/#":      "must not have a fragment",
		"https://policy.example/?a=pw":  "must not have a query",
		"https://policy.example/?":      "must not have a query",
		"https://policy.example:0/":     "must not have a port",
		"https://policy.example:65536":  "must not have a port",
		"https://pw:policy.example":     "not a URL",
		"https://policy.example\r\nA:b": "not a URL",
		"https://policy.example/%":      "not a URL",
	} {
		cfg := config(t, url)
		cfg.Allow = nil
		_, err := webhook.New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: %v; want %s", url, err, want)
		}
	}
}

// TestAnAddressIsJudgedWhenItIsDialled, whatever name led to it, and whatever
// the name meant before.
func TestAnAddressIsJudgedWhenItIsDialled(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	visited := talk(t, func(net.Conn, <-chan struct{}) { visits.Add(1) })
	for _, address := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1", "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::10.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:a00:1::1",
		"3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
	} {
		cfg := config(t, "https://policy.example:"+port(t, visited)+"/gate")
		cfg.Allow, cfg.Resolver = nil, names([]string{address})
		v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
		closed(t, v, d, hooks.OutcomeUnavailable, webhook.CodeRefusedAddress)
		if !strings.HasPrefix(d.Payload.Reason, "unavailable: policy.example:") {
			t.Errorf("the reason names no host: %s", d.Payload.Reason)
		}
		if t.Failed() {
			t.Fatalf("that was %s", address)
		}
	}
	if visits.Load() != 0 {
		t.Errorf("%d connections were made", visits.Load())
	}
}

func TestANameThatMovesInwardIsRefused(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(says(t, allows))
	s.Config.SetKeepAlivesEnabled(false) // the next question dials again
	s.StartTLS()
	t.Cleanup(s.Close)
	cfg := config(t, "https://example.com:"+port(t, s.URL)+"/gate") // the certificate is for it
	cfg.CA, cfg.Allow = certificate(t, s), []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	cfg.Resolver = names([]string{"127.0.0.1"}, []string{"127.0.0.2"})
	gate := open(t, cfg).Hooks().BeforeToolCall
	v, d := ask(t, gate, calling("refund"))
	expect(t, d.Payload.Reason, v.Action, hooks.ActionContinue)
	v, d = ask(t, gate, calling("refund"))
	closed(t, v, d, hooks.OutcomeUnavailable, webhook.CodeRefusedAddress)
}

func TestPlainHTTPReachesNothingPublic(t *testing.T) {
	t.Parallel()
	s := serve(t, says(t, allows))
	for address, want := range map[string]string{"127.0.0.1": "", "93.184.216.34": webhook.CodeRefusedAddress, "2606:4700::1": webhook.CodeRefusedAddress} {
		cfg := config(t, "http://policy.example:"+port(t, s.URL)+"/gate")
		cfg.Resolver = names([]string{address})
		_, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
		expect(t, address+": "+d.Payload.Reason, d.ReasonCode, want)
	}
}

func TestAHostThatIsNotFoundIsNotAsked(t *testing.T) {
	t.Parallel()
	cfg := config(t, "https://policy.example/gate")
	cfg.Resolver = names(nil)
	v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
	closed(t, v, d, hooks.OutcomeUnavailable, webhook.CodeConnect)
}
