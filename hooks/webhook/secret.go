package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Secret is a key that signs questions. The zero value is none. Printed, it
// shows nothing.
type Secret struct{ key []byte }

const (
	secretPrefix = "whsec_"
	minSecret    = 24
	maxSecret    = 64
)

var errSecret = errors.New("a secret is whsec_ and 24 to 64 bytes in base64, such as printf 'whsec_%s' \"$(openssl rand -base64 32)\" makes")

// ParseSecret reads a secret in the form of Standard Webhooks: whsec_ and 24 to
// 64 bytes in base64. Its error shows nothing of text.
func ParseSecret(text string) (Secret, error) {
	coded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return Secret{}, errSecret
	}
	key, err := base64.StdEncoding.Strict().DecodeString(coded)
	if err != nil || len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, errSecret
	}
	return Secret{key: key}, nil
}

// String is for logs.
func (Secret) String() string { return "[secret]" }

// GoString is for logs too.
func (s Secret) GoString() string { return s.String() }

// sign is the signature of body under id, at a time, as a header has it.
func (s Secret) sign(id string, at time.Time, body []byte) string {
	h := hmac.New(sha256.New, s.key)
	for _, part := range [][]byte{[]byte(id), []byte("."), strconv.AppendInt(nil, at.Unix(), 10), []byte("."), body} {
		h.Write(part) // never fails
	}
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}
