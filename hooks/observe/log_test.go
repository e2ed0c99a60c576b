package observe_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

func TestTheSameReportIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		report := observe.LogReports(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))
		late := observe.Report{Plugin: "p", Hook: observe.HookAfterEvent, Reason: observe.ReasonTimeout}
		for range 10 {
			report(late)
			report(observe.Report{Plugin: "q", Hook: observe.HookAfterEvent, Reason: observe.ReasonTimeout})
		}
		pass(time.Minute)
		report(late)
		line := func(p string) string {
			return `level=WARN msg="a lifecycle plugin was left out of a request" plugin=` + p + ` hook=AfterEvent reason=timeout`
		}
		expect(t, "log", strings.Split(strings.TrimSpace(out.String()), "\n"), []string{line("p"), line("q"), line("p")})
	})
}
