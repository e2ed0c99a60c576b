package api

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestDocumentedLimitsHold(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| the body of a request, as it is sent and as it is unpacked | %d MiB | 413 ", maxBody>>20),
		fmt.Sprintf("| a stream whose reader takes nothing | %.0f s | ", defaultWriteTimeout.Seconds()),
		fmt.Sprintf("| `text` | %d KiB | 400 ", maxText>>10),
		fmt.Sprintf("| `externalId`, `idempotencyKey`, `agent`, `title`, `query` | %d characters |", maxName),
		fmt.Sprintf("| `reason` | %d characters |", maxReason),
		fmt.Sprintf("| a page of events or decisions | %d, and %d if not asked |", maxEventsPage, defaultEventsPage),
		fmt.Sprintf("| a page of anything else | %d, and %d if not asked |", maxPage, defaultPage),
		fmt.Sprintf("| a page, in bytes | %d MiB |", maxPageBytes>>20),
		fmt.Sprintf("a comment comes every %.0f s", defaultHeartbeat.Seconds()),
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/api.md does not say: %s", row)
		}
	}
}
