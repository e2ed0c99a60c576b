"""Verifies an export of agentd's ledger, without agentd: python3 verify_ledger.py < export.jsonl"""
import hashlib, json, struct, sys

COLUMNS = """session_id ledger_seq decision_id at_us tenant_id run_id turn_no gate subject attempt phase position chain_length
    hook_id hook_kind hook_version hook_digest hook_set_digest rule_id action effective outcome failure_policy failed_open
    reason_code fields_changed input_sha256 output_sha256 input_bytes output_bytes event_seq epoch worker_id queue_us latency_us
    deadline_ms trace_id payload_sha256""".split()

def column(name, value):
    pack = lambda content: struct.pack(">I", len(content)) + content
    return (b"\0" if value is None
            else b"\1" + pack(bytes([value])) if isinstance(value, bool)
            else b"\1" + pack(struct.pack(">q", value)) if isinstance(value, int)
            else b"\1" + pack(b"".join(pack(text.encode()) for text in value)) if isinstance(value, list)
            else b"\1" + pack(bytes.fromhex(value) if name.endswith("_sha256") else value.encode()))

def digest(start, line, names):
    return hashlib.sha256(start + b"".join(column(name, line[name]) for name in names)).hexdigest()

def check(right, problem, row, decision=None):
    if not right:
        problems.append(problem)
        print(f"session {of['session_id']} row {row} (decision {decision}): {problem}")

problems, sessions, decisions, end = [], 0, 0, None
of, gone, seq, head, decision, event, ended = {"session_id": None, "ledger_seq": 0}, True, 0, "0" * 64, None, 0, 0
for line in map(json.loads, sys.stdin.buffer):
    kind = line["kind"]
    if kind in ("session", "end"):
        check(seq >= (of["ledger_seq"] or 0), "missing", seq + 1)
    if kind == "session":
        sessions, of, gone, seq, head, decision, event, ended = sessions + 1, line, line["last_seq"] is None, 0, "0" * 64, None, 0, 0
        check(gone or not line["tombstone"], "session", 0)
    elif kind == "decision":
        row, decision, next_event = line["ledger_seq"], line["decision_id"], line["event_seq"] or 0
        computed = digest(b"agentd.ledger.v1" + bytes.fromhex(line["prev_hash"] or ""), line, COLUMNS)
        check((not gone or seq > 0) and line["session_id"] == of["session_id"], "session", 0)
        check(row == seq + 1, "missing", seq + 1)
        check(row != seq + 1 or line["prev_hash"] == head, "prev_hash", row, decision)
        check(line["row_hash"] == computed, "row_hash", row, decision)
        if payload := line["payload"]:
            computed = digest(bytes.fromhex(payload["salt"] or ""), payload, ("reason", "patch", "annotations"))
            check(line["payload_sha256"] == computed, "payload", row, decision)
        check(max(event, ended + 1) <= next_event and (gone or next_event <= of["last_seq"]), "event_seq", row, decision)
        check(gone or line["tenant_id"] == of["tenant_id"], "tenant_id", row, decision)
        check(gone or row <= of["ledger_seq"], "beyond_head", row, decision)
        check(gone or row != of["ledger_seq"] or line["row_hash"] == of["ledger_head"], "ledger_head", row, decision)
        decisions, seq, head, event = decisions + 1, row, line["row_hash"], max(event, next_event)
    elif kind == "mark":
        known = (seq, head) if seq else (0, "")
        check((line["ledger_seq"], line["ledger_head"]) == known, "mark", line["ledger_seq"], decision if line["ledger_seq"] == seq else None)
        ended = max(ended, line["event_seq"])
    elif kind == "end":
        end = line
whole = end and (end["sessions"] + end["tombstones"], end["decisions"]) == (sessions, decisions)
print(f"{sessions} sessions, {decisions} decisions, {len(problems)} problems" + ("" if whole else "; the export is not whole"))
sys.exit(0 if whole and not problems else 1)
