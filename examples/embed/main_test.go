package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m, storetest.RequireToolCalls) }

func TestTheDeskRefundsWhatItsPolicyAllows(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for range 2 { // the second start finds what the first has left
		var out bytes.Buffer
		if err := run(t.Context(), db.URL, []string{"refund 20 for order 4711", "refund 900 for order 4711"}, &out); err != nil {
			t.Fatal(err)
		}
		want := `> refund 20 for order 4711
I will refund that. 
20 refunded for order 4711.
  BeforeToolCall refund-limit: continue 
> refund 900 for order 4711
I will refund that. 
This call was blocked and not run: A refund of 900 is more than 500.
  BeforeToolCall refund-limit: block refund_too_large
`
		if got := out.String(); got != strings.ReplaceAll(want, `\x20`, " ") {
			t.Errorf("%s", got)
		}
	}
}

func TestTheDeskSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"": "AGENTD_DATABASE_URL is not set", "postgres://u@127.0.0.1:1/none": "connect", "postgres://%": "parse",
	} {
		if err := run(t.Context(), url, nil, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
}

func TestTheDeskLeavesWhenItIsToldTo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	told := errors.New("told to")
	out := writer(func(b []byte) (int, error) { // the first line comes before the answer
		cancel(told)
		return len(b), nil
	})
	if err := run(ctx, db.URL, []string{"hello"}, out); !errors.Is(err, told) && !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestArgumentsThatOthersReadOtherwiseAreNone(t *testing.T) {
	t.Parallel()
	for arguments, fine := range map[string]bool{
		`{"order":"1","amount":"20"}`:                true,
		`{"order":"1","amount":"20","AMOUNT":"900"}`: false,
		`{"order":"1","Amount":"900"}`:               false,
		`{"order":"1","amount":20}`:                  false,
		`{"order":"1","amount":"-20"}`:               false,
		`{"order":"","amount":"20"}`:                 false,
		`{"order":"1","amount":"20"}{}`:              false,
	} {
		if err := newRefunds().Validate([]byte(arguments)); (err == nil) != fine {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}
