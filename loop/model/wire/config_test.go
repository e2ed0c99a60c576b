package wire

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

func TestABaseURLIsAppendedTo(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"http://provider.invalid":         "http://provider.invalid/v1/messages",
		"http://provider.invalid/":        "http://provider.invalid/v1/messages",
		"http://provider.invalid/a?key=b": "http://provider.invalid/a/v1/messages?key=b",
	} {
		u, err := ParseURL(base)
		if err != nil {
			t.Fatal(err)
		}
		// A request with another path than one that begins with / is refused.
		if got := u.JoinPath("v1/messages"); got.String() != want || got.Path[0] != '/' {
			t.Errorf("%s: got %s with path %s", base, got, got.Path)
		}
	}
}

func TestOddBaseURLsAreRefused(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"":                               "must begin with http",
		"provider.invalid/v1":            "must begin with http",
		"//provider.invalid":             "must begin with http",
		"file:///etc/passwd":             "must begin with http",
		"ftp://provider.invalid":         "must begin with http",
		"unix:///run/provider.sock":      "must begin with http",
		"https:provider.invalid":         "must begin with http",
		"https:///v1":                    "must begin with http",
		"https://:443/v1":                "must begin with http",
		"https://user:hush@provider/v1":  "must not hold a user or password",
		"https://hush@provider.invalid":  "must not hold a user or password",
		"https://provider.invalid/#hush": "must not have a fragment",
		"https://provider.invalid/#":     "must not have a fragment",
		"https://provider.invalid:0":     "must not have a port",
		"https://provider.invalid:65536": "must not have a port",
		"https://hush:provider.invalid":  "not a URL",
		"https://provider.invalid\nhush": "not a URL",
		"https://[::1":                   "not a URL",
		"https://provider.invalid/%hush": "not a URL",
	} {
		if _, err := ParseURL(base); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v; want %q", base, err, want)
		}
	}
	// Where models run is the operator's to say.
	for _, base := range []string{"http://127.0.0.1:8080/v1", "http://10.0.0.1", "http://[::1]:1", "http://169.254.169.254/", "https://provider.invalid:65535"} {
		if _, err := ParseURL(base); err != nil {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// TestAKeyStaysWithItsHost: neither it nor a question goes where an answer
// points.
func TestAKeyStaysWithItsHost(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer key" {
				t.Error("the provider was sent no key")
			}
			http.Redirect(w, r, elsewhere.URL, code)
		}))
		t.Cleanup(provider.Close)
		u, err := ParseURL(provider.URL)
		if err != nil {
			t.Fatal(err)
		}
		e := NewEndpoint(Settings{URL: u, APIKey: "key", Authorize: func(h http.Header) { h.Set("Authorization", "Bearer key") }})
		t.Cleanup(e.Close)
		resp, err := e.Send(t.Context(), loop.ProviderRequest{Body: "{}", Headers: []hooks.Header{{Name: "X-A", Value: "b"}}})
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != code {
			t.Errorf("got %d, want %d", resp.StatusCode, code)
		}
	}
	if visits.Load() != 0 {
		t.Errorf("%d requests went elsewhere", visits.Load())
	}
}
