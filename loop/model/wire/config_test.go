package wire

import "testing"

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
