package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// keyFlags are where the API key comes from. It is no flag itself, since
// everybody on a machine can read the arguments of its processes.
type keyFlags struct {
	APIKeyFile string `name:"api-key-file" env:"AGENTD_API_KEY_FILE" placeholder:"FILE" help:"Read the API key from this file; AGENTD_API_KEY is the key itself."`
}

const keyVariable = "AGENTD_API_KEY"

// key returns the API key, "" if none is configured.
func (f keyFlags) key() (string, error) {
	key := os.Getenv(keyVariable)
	switch {
	case f.APIKeyFile == "":
	case key != "":
		return "", errors.New("the API key is given twice: set AGENTD_API_KEY or AGENTD_API_KEY_FILE, not both")
	default:
		content, err := os.ReadFile(f.APIKeyFile)
		if err != nil {
			return "", fmt.Errorf("read the API key: %w", err)
		}
		// An empty file must not open the door.
		if key = strings.TrimSpace(string(content)); key == "" {
			return "", fmt.Errorf("the API key file %s is empty: write a key into it", f.APIKeyFile)
		}
	}
	// A header carries it; what else is in it would be lost on the way.
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the API key has characters other than visible ASCII: make one with `openssl rand -hex 32`")
	}
	return key, nil
}
