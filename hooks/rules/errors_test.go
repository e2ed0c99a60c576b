package rules_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/rules"
)

// TestWhatIsWrongIsToldWithItsPlace: the text beside each file is what a person
// reads. AGENTD_RECORD writes it anew, to be read before it is committed.
func TestWhatIsWrongIsToldWithItsPlace(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = rules.Parse([]rules.File{{Name: filepath.Base(file), Text: text}})
			var told *rules.Errors
			if !errors.As(err, &told) {
				t.Fatalf("error %v", err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if os.Getenv("AGENTD_RECORD") != "" {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got := told.Error() + "\n"; got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
