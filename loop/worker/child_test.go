package worker_test

const childEnv = "AGENTD_WORKER_TEST_CHILD"

func child(string) int { return 1 }
