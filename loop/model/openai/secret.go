package openai

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

// minSecret is the length from which a value in the base URL's query may be a
// secret: a version is shorter, and its digits are in every text.
const minSecret = 6

// redactor returns a function that takes the credentials of a provider out of
// a text. They live in it and in what signs requests, and in no struct, so that
// neither a %+v nor a panic can print them.
func redactor(apiKey string, base *url.URL) func(string) string {
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

// authorizer returns a function that adds the key to the header of a request.
func authorizer(apiKey string) func(http.Header) {
	return func(h http.Header) {
		if apiKey != "" {
			h.Set("Authorization", "Bearer "+apiKey)
		}
	}
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

// clean makes a provider's text fit to store and to show: one line of valid
// text, shortened, without the key and without what looks like one.
func (m *Model) clean(text string) string {
	text, _ = event.CleanText(text)
	text = strings.Join(strings.FieldsFunc(m.redact(text), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	return event.Shorten(text, maxErrorText)
}

// cause is an error's text without credentials. It matches what the error
// matched, and does not hand it out.
type cause struct {
	text string
	is   func(error) bool
}

// cause returns err as it may be logged.
func (m *Model) cause(err error) error {
	if err == nil {
		return nil
	}
	return cause{text: m.clean(err.Error()), is: func(target error) bool { return errors.Is(err, target) }}
}

func (c cause) Error() string { return c.text }

func (c cause) Is(target error) bool { return c.is(target) }
