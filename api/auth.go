package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// tenant is the one that everybody belongs to.
const tenant = "default"

// principal is who is asking.
type principal struct {
	tenantID string
	actor    event.Actor
}

type principalKey struct{}

// principalOf returns who passed the guard. Without one it is the zero value,
// whose tenant has nothing.
func principalOf(ctx context.Context) principal {
	p, _ := ctx.Value(principalKey{}).(principal)
	return p
}

// The callers of a server: with an API key there is one, and without it another.
var (
	localCaller = event.Actor{Kind: event.ActorPrincipal, ID: "local"}
	keyCaller   = event.Actor{Kind: event.ActorKey, ID: "default"}
)

// Callers are all that a server can know its callers as: who else is named
// somewhere, for approvals say, never comes.
func Callers() []event.Actor { return []event.Actor{localCaller, keyCaller} }

// guard lets those through who may call, and puts the principal into the
// request's context.
func (s *server) guard(next http.Handler) http.Handler {
	check, p := localOnly, principal{tenantID: tenant, actor: localCaller}
	if s.APIKey != "" {
		shows := ShowsKey(s.APIKey)
		check = func(r *http.Request) error {
			if !shows(r) {
				return errUnauthenticated
			}
			return nil
		}
		p.actor = keyCaller
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, p)))
	})
}

// ShowsKey returns what says whether a request has key as its bearer token. It is for
// pages beside the API, too, and safe for concurrent use.
func ShowsKey(key string) func(*http.Request) bool {
	// Digests have one length, so the comparison takes one time.
	want := sha256.Sum256([]byte(key))
	return func(r *http.Request) bool {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(token)))
		return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
	}
}

var crossOrigin = http.NewCrossOriginProtection()

// Local is nil for a request that a server that asks for no key may answer, as far as
// its headers tell: the error, which may be shown, is about one that a web page may have
// had a browser send. It is for pages beside the API, too, and safe for concurrent use.
func Local(r *http.Request) error { return localOnly(r) }

// localOnly keeps web pages from driving a server that asks for no key.
func localOnly(r *http.Request) error {
	if !loopbackHost(r.Host) {
		return errHost
	}
	// The check lets GET pass, for links. Here nothing is linked to, and a GET
	// can hold a stream open.
	asPost := *r
	asPost.Method = http.MethodPost
	if crossOrigin.Check(&asPost) != nil {
		return errCrossOrigin
	}
	return nil
}

// loopbackHost reports whether a Host header names this machine. Whatever else
// resolves to 127.0.0.1 is somebody's domain.
func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
