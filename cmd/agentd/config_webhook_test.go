package main

import (
	"regexp"
	"strings"
	"testing"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestAWebhookIsListedWithoutItsSecret(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{
		"agentd.yaml": `hooks:
  - webhook:
      url: https://policy.example/gate
      gates: [BeforeToolCall, AfterToolCall, TransformContext]
      secret_env: POLICY_SECRET
      secret_file: [old.secret]
      allow: [10.1.0.0/16, "fd00:1::/32"]
      concurrency: 4
      queue: 0
      breaker: {failures: 3, open: 30s}
    id: fraud-check
    phase: validate
    tools: [refund]
    timeout: 500ms
    shadow: true
  - webhook: {url: "http://127.0.0.1:1", gates: BeforeInput, secret_env: [POLICY_SECRET], allow: 127.0.0.1/32, breaker: {failures: 0}}
    on_failure: open
`,
		"old.secret": webhookSecret + "\n",
	})
	env := []string{"POLICY_SECRET=" + webhookSecret}
	code, out, said := runAgentd(t, options{dir: dir, env: env}, "hooks", "list", "--json")
	if code != 0 || strings.Contains(out+said, webhookSecret[7:]) {
		t.Fatalf("exit code %d, printed\n%s%s", code, out, said)
	}
	for _, want := range []string{
		`{"position":1,"gate":"BeforeInput","id":"webhook","version":"1","kind":"webhook","phase":"mutate","config":"{\"url\":\"http://127.0.0.1:1\",\"allow\":[\"127.0.0.1/32\"],\"concurrency\":16,\"queue\":64,\"breaker\":{\"failures\":0}}","on_failure":"open"`,
		`"gate":"BeforeToolCall","id":"fraud-check","version":"1","kind":"webhook","phase":"validate","config":"{\"url\":\"https://policy.example/gate\",\"allow\":[\"10.1.0.0/16\",\"fd00:1::/32\"],\"concurrency\":4,\"queue\":0,\"breaker\":{\"failures\":3,\"open\":\"30s\"}}","on_failure":"closed","time_limit":500000000`,
		`"gate":"AfterToolCall","id":"fraud-check"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	code, out, said = runAgentd(t, options{dir: dir, env: env}, "hooks", "list")
	if code != 0 || strings.Count(out, " webhook ") != 4 || strings.Count(out, "fraud-check@1") != 3 || strings.Count(out, "tools=refund") != 2 {
		t.Errorf("exit code %d, said %s, printed\n%s", code, said, out)
	}
}

func TestWhatIsWrongWithAWebhookIsToldWithItsPlace(t *testing.T) {
	t.Parallel()
	const text = `hooks:
  - webhook: {gates: [BeforeToolCall]}
  - webhook: {url: "https://a", gates: [BeforeToolCall]}
  - webhook: {url: "https://a", gates: [BeforeExecute], secret_env: NOPE}
  - webhook: {url: "https://a", gates: [BeforeToolCall], secret_env: BAD}
  - webhook: {url: "https://a", gates: [AfterToolCall], secret_file: nope}
  - webhook: {url: "https://a", gates: [BeforeToolCall], secret_file: bad.secret}
  - webhook: {url: "https://a", gates: [BeforeToolCall], secret_env: GOOD, ca_file: nope.pem}
  - webhook: {url: "https://a", gates: [BeforeToolCall], secret_env: GOOD, ca_file: bad.secret}
  - webhook: {url: "https://a", gates: [BeforeInput, BeforeLunch], secret_env: GOOD}
  - webhook: {url: "https://10.1.2.3", gates: [BeforeToolCall], secret_env: GOOD, allow: [10.2.0.0/16]}
  - webhook: {url: "https://a", gates: [BeforeToolCall], secret_env: GOOD, allow: [10.2.0.1/16]}
  - webhook: {url: "https://a", gates: [BeforeToolCall], secret_env: GOOD, allow: [everything]}
  - webhook: {url: "https://a", gates: [BeforeToolCall], secret_env: GOOD, concurrency: 0}
  - webhook: {url: "http://169.254.169.254/", gates: [BeforeToolCall], secret_env: GOOD}
  - webhook: {url: "file:///etc/passwd", gates: [BeforeToolCall], secret_env: GOOD}
  - webhook: {url: "https://user:hush@a", gates: [BeforeToolCall], secret_env: GOOD, secret: x}
  - webhook: {url: "https://user:hush@a", gates: [BeforeToolCall], secret_env: GOOD}
  - webhook: {url: "https://a", gates: [BeforeInput], secret_env: GOOD}
    tools: x
  - webhook: {url: "https://a", gates: [BeforeInput], secret_env: ` + webhookSecret + `}
`
	const want = `agentd.yaml:2:14: webhook has no key url
agentd.yaml:3:14: webhook has no secret; expected secret_env or secret_file, which name the variable or the file that has it
agentd.yaml:4:69: the environment has no variable NOPE
agentd.yaml:5:70: what BAD has is no secret: a secret is whsec_ and 24 to 64 bytes in base64, such as printf 'whsec_%s' "$(openssl rand -base64 32)" makes
agentd.yaml:6:70: nope cannot be read: no such file or directory
agentd.yaml:7:71: what bad.secret has is no secret: a secret is whsec_ and 24 to 64 bytes in base64, such as printf 'whsec_%s' "$(openssl rand -base64 32)" makes
agentd.yaml:8:85: nope.pem cannot be read: no such file or directory
agentd.yaml:9:85: ca_file: there is no certificate in it
agentd.yaml:10:54: gates[1]: "BeforeLunch" is no gate; expected one of …
agentd.yaml:11:20: url: 10.1.2.3 is not a public address, and not in a network that allow names
agentd.yaml:12:84: allow[0]: 10.2.0.1/16 is no network, such as 10.1.0.0/16
agentd.yaml:13:84: allow: netip.ParsePrefix("everything"): no '/'
agentd.yaml:14:89: concurrency is 0; expected a number from 1
agentd.yaml:15:20: url: must be https; http only reaches addresses in networks that allow names
agentd.yaml:16:20: url: must begin with https:// and name a host
agentd.yaml:17:86: webhook has no key "secret"; expected one of …
agentd.yaml:18:20: url: must not hold a user or password: questions are signed
agentd.yaml:20:12: webhook is about no tool call, so it has no tools
agentd.yaml:21:14: a secret stands in the file, which others read; secret_env and secret_file name the variable or the file that has it
`
	dir := configFiles(t, map[string]string{"agentd.yaml": text, "bad.secret": "hush"})
	// Who only lists needs no secrets, but what is there has to be one.
	listed := regexp.MustCompile(`(?m)^.*(variable NOPE|: nope cannot be read.*)\n`).ReplaceAllString(want, "")
	for command, want := range map[string]string{"hooks list": listed, "serve": want} {
		args := strings.Fields(command)
		code, out, said := runAgentd(t, options{dir: dir, env: []string{"BAD=hush", "GOOD=" + webhookSecret}}, args...)
		if got := withoutLists(said); code != exitUsage || out != "" || got != withoutLists("agentd: "+want) {
			t.Errorf("%v: exit code %d, printed %q, said\n%s", args, code, out, said)
		}
		if strings.Contains(said, "hush") || strings.Contains(said, webhookSecret[7:]) {
			t.Errorf("%v tells a secret: %s", args, said)
		}
	}
}
