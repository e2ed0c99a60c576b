package storetest

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// hastily lets the role of a URL log in with the password that it has, and with
// next to no work: Postgres makes clients hash 4096 times, which under the race
// detector is most of what a short test costs. Tests guard no secret.
func hastily(ctx context.Context, databaseURL string) error {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	verifier, err := scramVerifier(config.Password)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf(`ALTER ROLE %s PASSWORD '%s'`, pgx.Identifier{config.User}.Sanitize(), verifier))
	return errors.Join(err, conn.Close(ctx))
}

// scramVerifier is what Postgres stores of a password: see RFC 5803.
func scramVerifier(password string) (string, error) {
	const iterations = 1
	salt := []byte("agentd's tests..")
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	of := func(what string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(what))
		return h.Sum(nil)
	}
	stored, text := sha256.Sum256(of("Client Key")), base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, text(salt), text(stored[:]), text(of("Server Key"))), nil
}
