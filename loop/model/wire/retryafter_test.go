package wire

import (
	"net/http"
	"testing"
	"time"
)

func TestHowLongAProviderAsksToWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		status int // 0 means 429
		header map[string]string
		want   time.Duration
	}{
		{"Nothing", 0, nil, 0},
		{"Seconds", 0, map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{"PaddedSeconds", 0, map[string]string{"Retry-After": " 7 "}, 7 * time.Second},
		{"PartsOfASecond", 0, map[string]string{"Retry-After": "1.5"}, 1500 * time.Millisecond},
		{"AnyRefusal", 503, map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{"Zero", 0, map[string]string{"Retry-After": "0"}, 0},
		{"Negative", 0, map[string]string{"Retry-After": "-7"}, 0},
		{"VeryNegative", 0, map[string]string{"Retry-After": "-99999999999999999999999999"}, 0},
		{"TooLong", 0, map[string]string{"Retry-After": "86400"}, MaxRetryAfter},
		{"WayTooLong", 0, map[string]string{"Retry-After": "99999999999999999999999999"}, MaxRetryAfter},
		{"Garbage", 0, map[string]string{"Retry-After": "soon"}, 0},
		{"Infinity", 0, map[string]string{"Retry-After": "Inf"}, 0},
		{"NotANumber", 0, map[string]string{"Retry-After": "1.2.3"}, 0},
		{"Exponent", 0, map[string]string{"Retry-After": "1e3"}, 0},
		{"Date", 0, map[string]string{"Retry-After": "Sun, 01 Mar 2026 12:00:20 GMT"}, 20 * time.Second},
		{"OldDateForm", 0, map[string]string{"Retry-After": "Sunday, 01-Mar-26 12:00:20 GMT"}, 20 * time.Second},
		{"DateByItsOwnClock", 0, map[string]string{"Retry-After": "Sun, 01 Mar 2026 12:00:20 GMT", "Date": "Sun, 01 Mar 2026 12:00:15 GMT"}, 5 * time.Second},
		{"PastDate", 0, map[string]string{"Retry-After": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0},
		{"FarDate", 0, map[string]string{"Retry-After": "Mon, 01 Mar 2027 12:00:00 GMT"}, MaxRetryAfter},
		{"Milliseconds", 0, map[string]string{"Retry-After-Ms": "250"}, 250 * time.Millisecond},
		{"MillisecondsFirst", 0, map[string]string{"Retry-After-Ms": "250", "Retry-After": "1"}, 250 * time.Millisecond},
		{"GarbageMilliseconds", 0, map[string]string{"Retry-After-Ms": "x", "Retry-After": "1"}, time.Second},
		{"NegativeMilliseconds", 0, map[string]string{"Retry-After-Ms": "-250"}, 0},
		{"ResetWithUnits", 0, map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m30s"}, 90 * time.Second},
		{"ResetOfWhatIsUsedUp", 0, map[string]string{
			"X-Ratelimit-Remaining-Requests": "3", "X-Ratelimit-Reset-Requests": "9m", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "7.66s",
		}, 7660 * time.Millisecond},
		{"LaterReset", 0, map[string]string{
			"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "9s", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "7s",
		}, 9 * time.Second},
		{"RetryAfterBeforeReset", 0, map[string]string{"Retry-After": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "9s"}, time.Second},
		{"ResetWithoutRemaining", 0, map[string]string{"X-Ratelimit-Reset": "9s"}, 0},
		{"ResetOfANumber", 0, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "9"}, 0},
		{"ResetOfNothing", 0, map[string]string{"X-Ratelimit-Remaining": "0"}, 0},
		{"ResetWithAnotherStatus", 500, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "9s"}, 0},
		{"NegativeReset", 0, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "-9s"}, 0},
		{"LongReset", 503, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "24h"}, MaxRetryAfter},
		{"ResetInUnixSeconds", 0, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1772366409"}, 9 * time.Second},
		{"ResetInUnixMilliseconds", 0, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1772366400900"}, 900 * time.Millisecond},
		{"ResetAsADate", 0, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "2026-03-01T12:00:09Z"}, 9 * time.Second},
		{"ResetAsAnHTTPDate", 0, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "Sun, 01 Mar 2026 12:00:09 GMT"}, 9 * time.Second},
		{"ResetBetweenTheUnits", 0, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "99999999999"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := make(http.Header)
			for name, value := range tt.header {
				h.Set(name, value)
			}
			status := tt.status
			if status == 0 {
				status = http.StatusTooManyRequests
			}
			if got := RetryAfter(status, h, now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
