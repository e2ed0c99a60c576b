package builtin

import "encoding/json"

// asJSON is a config as it is stored.
func asJSON(config any) string {
	text, _ := json.Marshal(config) // configs always encode
	return string(text)
}
