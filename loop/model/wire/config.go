package wire

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ParseURL reads the base URL of a provider. Its errors repeat nothing of text.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// The parser's error repeats the whole text, and with it any password.
		return nil, errors.New("not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("must begin with http:// or https:// and name a host")
	case u.User != nil:
		return nil, errors.New("must not hold a user or password, use the API key")
	case strings.Contains(text, "#"):
		return nil, errors.New("must not have a fragment")
	case u.Port() != "":
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
			return nil, errors.New("must not have a port that there is not")
		}
	}
	if u.Path == "" {
		u.Path = "/" // JoinPath would make a path without a beginning, which servers refuse
	}
	return u, nil
}

// Limit turns a configured timeout into a limit: 0 into the default, and a
// negative one into 0, which is none.
func Limit(d, byDefault time.Duration) time.Duration {
	switch {
	case d == 0:
		return byDefault
	case d < 0:
		return 0
	}
	return d
}
