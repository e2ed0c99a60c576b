package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// maxErrorText is the length of a shown message, in bytes.
const maxErrorText = 500

// minSecret is the length from which a value in the base URL's query may be a
// secret: a version is shorter, and its digits are in every text.
const minSecret = 6

// Redact takes the credentials of a provider out of a text. They live in it and in what signs requests, and in no struct, so that
// neither a %+v nor a panic can print them.
type Redact func(string) string

// NewRedact returns one for a key, "" for none, and the URL of a provider.
func NewRedact(apiKey string, base *url.URL) Redact {
	var pairs []string
	hide := func(secret, with string) {
		if secret != "" {
			pairs = append(pairs, secret, with)
		}
	}
	hide(apiKey, "[API key]")
	hide(base.RawQuery, "[query]") // some gateways take a key there
	for _, values := range base.Query() {
		for _, v := range values {
			if len(v) >= minSecret {
				hide(v, "[query]")
			}
		}
	}
	replacer := strings.NewReplacer(pairs...)
	return func(text string) string {
		text = replacer.Replace(text)
		text = keyShaped.ReplaceAllLiteralString(text, "sk-…redacted")
		return userInfo.ReplaceAllLiteralString(text, "://…@")
	}
}

// poster returns a function that makes the request of a call. It holds the
// URL, whose query may have a key.
func poster(u *url.URL) func(context.Context, string) *http.Request {
	return func(ctx context.Context, body string) *http.Request {
		again := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
		first, _ := again() // never fails
		r := &http.Request{
			Method: http.MethodPost, URL: u, Host: u.Host, Header: make(http.Header),
			Body: first, GetBody: again, ContentLength: int64(len(body)),
		}
		return r.WithContext(ctx)
	}
}

// ValidKey reports whether a header can carry an API key: what is no visible
// ASCII would be lost or refused there.
func ValidKey(apiKey string) bool {
	return !strings.ContainsFunc(apiKey, func(r rune) bool { return r <= ' ' || r > '~' })
}

// keyShaped is what many providers' keys look like. A provider that calls
// another one tells that one's key, which nobody here knows.
var keyShaped = regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{8,}\b`)

// userInfo is the user and password of a URL: that of a proxy stands in errors.
var userInfo = regexp.MustCompile(`://[^/@\s]+@`)

// withoutURL takes the URL out of net/http's error.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

// Clean makes a provider's text fit to store and to show: one line of valid
// text, shortened, without the key and without what looks like one.
func (r Redact) Clean(text string) string {
	text, _ = event.CleanText(text)
	text = strings.Join(strings.FieldsFunc(r(text), func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c)
	}), " ")
	return event.Shorten(text, maxErrorText)
}

// cause is an error's text without credentials. It matches what the error
// matched, and does not hand it out.
type cause struct {
	text string
	is   func(error) bool
}

// Cause returns err as it may be logged, nil for nil. It matches what err
// matches.
func (r Redact) Cause(err error) error {
	if err == nil {
		return nil
	}
	return cause{text: r.Clean(err.Error()), is: func(target error) bool { return errors.Is(err, target) }}
}

func (c cause) Error() string { return c.text }

func (c cause) Is(target error) bool { return c.is(target) }
