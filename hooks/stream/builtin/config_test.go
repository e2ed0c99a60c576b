package builtin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

// refused checks that a config is refused, and for which field.
func refused(t *testing.T, kind, field string) func(stream.Registration, error) {
	return func(r stream.Registration, err error) {
		t.Helper()
		var bad *setting.Error
		if !errors.As(err, &bad) || bad.Kind != kind || bad.Field != field || bad.Problem == "" || r.New != nil {
			t.Errorf("%v; want a setting.Error of %s about %q", err, kind, field)
			return
		}
		if at := kind + ": " + field + ": "; field != "" && !strings.HasPrefix(err.Error(), at) {
			t.Errorf("%v; want it to begin with %q", err, at)
		}
	}
}

func TestGlobsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	const kind = "normalize_tool_dialect"
	for _, tools := range [][]string{{"a", "b["}, {"a", ""}, {"a", strings.Repeat("x", 1_025)}} {
		refused(t, kind, "tools[1]")(builtin.NormalizeToolDialect(builtin.NormalizeToolDialectConfig{Tools: tools}))
	}
	refused(t, kind, "tools")(builtin.NormalizeToolDialect(builtin.NormalizeToolDialectConfig{Tools: make([]string, 101)}))
}
