package wire

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait that a [loop.ModelError] tells: a provider
// that asks for more is out of order for the day.
const MaxRetryAfter = time.Hour

// RetryAfter is how long the header of a refusal asks to wait, 0 if it does
// not say or says something else. In order of trust: retry-after-ms;
// Retry-After in seconds or as a date, which is read against the provider's own
// clock if the answer tells it; and the reset of a limit that is used up, for a
// status that speaks of limits and in a form that has only one meaning.
func RetryAfter(status int, h http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	if ms, ok := number(h.Get("Retry-After-Ms")); ok {
		return bounded(ms, time.Millisecond)
	}
	after := strings.TrimSpace(h.Get("Retry-After"))
	if s, ok := number(after); ok {
		return bounded(s, time.Second)
	}
	if t, err := http.ParseTime(after); err == nil {
		return capped(t.Sub(now))
	}
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0
	}
	var wait time.Duration
	for _, limit := range []string{"", "-Requests", "-Tokens"} {
		if left, ok := number(h.Get("X-Ratelimit-Remaining" + limit)); ok && left == 0 {
			wait = max(wait, reset(h.Get("X-Ratelimit-Reset"+limit), now))
		}
	}
	return wait
}

// reset reads when a limit is lifted: a duration with its units, a date, or a
// number that can only be a time of this century, in seconds or milliseconds.
// A smaller number may be seconds or milliseconds from now, and is not read.
func reset(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if d, err := time.ParseDuration(text); err == nil {
		return capped(d)
	}
	for _, layout := range []string{time.RFC3339, http.TimeFormat} {
		if t, err := time.Parse(layout, text); err == nil {
			return capped(t.Sub(now))
		}
	}
	const from, until = 1 << 30, 1 << 33 // the years 2004 and 2242
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case err != nil:
		return 0
	case from <= n && n < until:
		return capped(time.Unix(n, 0).Sub(now))
	case from*1000 <= n && n < until*1000:
		return capped(time.UnixMilli(n).Sub(now))
	}
	return 0
}

// number reads a number that has a meaning here: not an infinite one, nor one
// with an exponent or in hexadecimal.
func number(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if text == "" || strings.Trim(text, "0123456789.-+") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

func bounded(n float64, unit time.Duration) time.Duration {
	switch { // before the product overflows
	case n <= 0:
		return 0
	case n >= float64(MaxRetryAfter/unit):
		return MaxRetryAfter
	}
	return time.Duration(n * float64(unit))
}

func capped(d time.Duration) time.Duration { return min(max(d, 0), MaxRetryAfter) }
