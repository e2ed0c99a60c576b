package storetest

import (
	"strings"
	"testing"
)

func TestRequireToolCalls(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		seen seen
		want string
	}{
		{seen{}, "no test of this package had a database"},
		{seen{databases: 3}, "none of the 3 databases"},
		{seen{databases: 3, toolCalls: 1}, ""},
	} {
		err := RequireToolCalls(test.seen)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("RequireToolCalls(%+v) = %v, want %q", test.seen, err, test.want)
		}
	}
}
