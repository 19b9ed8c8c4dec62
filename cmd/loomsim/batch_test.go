package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// wide is an experiment with more runs than there are shards in the examples.
const wide = `name: wide
topology: {leaves: 2, spines: 2, hosts: {per_leaf: 2, link: {rate: 1Gbit, queue: 1MB}}, links: {rate: 1Gbit, queue: 1MB}}
workloads: [{sizes: solar-rpc, load: 10}]
duration: 5ms
schemes: [ecmp, conga]
loads: [30, 60]
sizes:
  paper: {seeds: 9}
`

// shardsMerge runs the command lines of a batch system's machines, and checks that they
// have made each run once.
func shardsMerge(t *testing.T, lines [][]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("wide.yaml", []byte(wide), 0o644); err != nil {
		t.Fatal(err)
	}
	made := made(fake)
	total := 0
	for _, args := range lines {
		for i := range args {
			if strings.HasPrefix(args[i], "experiments/") {
				args[i] = "wide.yaml"
			}
			if args[i] == "/results" {
				args[i] = "results"
			}
		}
		_, progress, err := loomsim(t.Context(), made, args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		m := regexp.MustCompile(`(\d+) runs made, 0 were stored already`).FindStringSubmatch(progress)
		if m == nil {
			t.Fatalf("%v: some runs were made before:\n%s", args, progress)
		}
		n, _ := strconv.Atoi(m[1])
		total += n
	}
	if total != 36 {
		t.Errorf("%d shards made %d runs, want 36", len(lines), total)
	}
	_, progress, err := loomsim(t.Context(), made, "run", "wide.yaml", "--size", "paper")
	want(t, "what is left", progress, "0 runs made, 36 were stored already")
	if err != nil {
		t.Error(err)
	}
}

// TestSlurm runs deploy/batch/loomsim.sbatch as Slurm does, for each task of its array.
func TestSlurm(t *testing.T) {
	script, err := filepath.Abs("../../deploy/batch/loomsim.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^#SBATCH --array=0-(\d+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the script has no array that begins at 0")
	}
	last, _ := strconv.Atoi(string(m[1]))
	var lines [][]string
	for task := range last + 1 {
		c := exec.Command("sh", script, "experiments/wide.yaml", "--size", "paper")
		c.Env = append(os.Environ(), "LOOMSIM=echo", fmt.Sprintf("SLURM_ARRAY_TASK_ID=%d", task), fmt.Sprintf("SLURM_ARRAY_TASK_COUNT=%d", last+1), "SLURM_CPUS_PER_TASK=2")
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Fields(string(out)))
	}
	shardsMerge(t, lines)
}

// TestKubernetes does what deploy/batch/loomsim-job.yaml has Kubernetes do.
func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile("../../deploy/batch/loomsim-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Spec struct {
			CompletionMode string `yaml:"completionMode"`
			Completions    int
			Template       struct {
				Spec struct {
					Containers []struct{ Command, Args []string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &job); err != nil {
		t.Fatal(err)
	}
	if job.Spec.CompletionMode != "Indexed" || job.Spec.Completions < 2 || len(job.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("the job is %+v", job)
	}
	c := job.Spec.Template.Spec.Containers[0]
	if len(c.Command) != 1 || c.Command[0] != "loomsim" {
		t.Errorf("the command is %q", c.Command)
	}
	var lines [][]string
	for index := range job.Spec.Completions {
		var line []string
		for _, a := range c.Args {
			line = append(line, strings.ReplaceAll(a, "$(JOB_COMPLETION_INDEX)", fmt.Sprint(index)))
		}
		lines = append(lines, line)
	}
	shardsMerge(t, lines)
}

func TestWrongShards(t *testing.T) {
	tree(t)
	for flags, says := range map[string]string{
		"--shard 4/4":         "write I/N",
		"--shard 0/2 --check": "--check needs the results of all shards",
		"--threads 0":         "at least 1",
	} {
		args := append([]string{"run", "experiments/small.yaml"}, strings.Fields(flags)...)
		if _, _, err := loomsim(t.Context(), made(fake), args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", flags, err)
		}
	}
}
