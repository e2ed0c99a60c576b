package scripted

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

var templateName = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// builtinValues are the names that every scenario has.
var builtinValues = map[string]bool{"last_user": true, "tool_result": true}

// values are what the templates of one call stand for.
type values map[string]string

// checkTemplate refuses a template that names nothing, which would otherwise
// be shown to the user as it stands.
func checkTemplate(text string, groups map[string]bool) error {
	for _, found := range templateName.FindAllStringSubmatch(text, -1) {
		if name := found[1]; !builtinValues[name] && !groups[name] {
			return fmt.Errorf("{{%s}} is neither last_user, tool_result nor a named group of the scenario's regexp", name)
		}
	}
	return nil
}

func (v values) expand(text string) string {
	return v.replace(text, func(s string) string { return s })
}

// expandJSON expands inside JSON text, where a template can only stand in a
// string.
func (v values) expandJSON(text string) string {
	return v.replace(text, func(s string) string {
		var quoted strings.Builder
		enc := json.NewEncoder(&quoted)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(s) // neither a string nor a Builder can make it fail
		return strings.TrimSuffix(strings.TrimPrefix(quoted.String(), `"`), "\"\n")
	})
}

func (v values) replace(text string, quote func(string) string) string {
	return templateName.ReplaceAllStringFunc(text, func(found string) string {
		return quote(v[strings.Trim(found, "{}")])
	})
}
