// Package packages tests what people install: the packages' contents, and the manifests for
// Kubernetes. With the tag packages it installs what `make packages` has made.
package packages

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const root = "../../"

// content is a file or folder of the packages.
type content struct {
	Src, Dst, Type, Packager string
	Expand                   bool
	FileInfo                 struct {
		Mode uint32 `yaml:"mode"`
	} `yaml:"file_info"`
}

type description struct {
	Name, Arch, Version string
	Contents            []content
	Scripts             map[string]string
}

func read(t *testing.T) (d description) {
	t.Helper()
	b, err := os.ReadFile(root + "deploy/packages/nfpm.yaml")
	if err == nil {
		err = yaml.Unmarshal(b, &d)
	}
	if err != nil || len(d.Contents) < 15 {
		t.Fatalf("nfpm.yaml has %d contents: %v", len(d.Contents), err)
	}
	return d
}

// destinations are the files of a packager's package that the description names.
func (d *description) destinations(packager string) map[string]content {
	all := make(map[string]content)
	for _, c := range d.Contents {
		if c.Packager == "" || c.Packager == packager {
			all[c.Dst] = c
		}
	}
	return all
}

// TestContents: what the packages are made of is there, every program is in them, with what
// its unit needs at the place where the unit looks.
func TestContents(t *testing.T) {
	d := read(t)
	for _, c := range d.Contents {
		if strings.Contains(c.Src+c.Dst, "${") && !c.Expand {
			t.Errorf("%s: variables are not replaced without expand", c.Dst)
		}
		if c.Type == "" && c.FileInfo.Mode == 0 {
			t.Errorf("%s has the mode that its source happens to have: say which", c.Dst)
		}
		if c.Type == "dir" || strings.HasPrefix(c.Src, "${BIN}/") {
			continue
		}
		if _, err := os.Stat(root + c.Src); err != nil {
			t.Errorf("%s: %v", c.Dst, err)
		}
	}
	for _, packager := range []string{"deb", "rpm"} {
		have := d.destinations(packager)
		// All programs of cmd are there, as make builds them into this folder.
		if c := have["/usr/bin"]; c.Src != "${BIN}/bin" || c.Type != "tree" {
			t.Errorf("%s has no programs: %+v", packager, c)
		}
		units, err := filepath.Glob(root + "deploy/systemd/*.service")
		if err != nil || len(units) < 2 {
			t.Fatalf("units %v: %v", units, err)
		}
		for _, u := range units {
			if c := have["/usr/lib/systemd/system/"+filepath.Base(u)]; c.FileInfo.Mode != 0o644 {
				t.Errorf("%s has no unit %s", packager, filepath.Base(u))
			}
			text, err := os.ReadFile(u)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^Exec[A-Za-z]+=[-+!@:]*(/usr/\S+)`).FindAllSubmatch(text, -1) {
				if _, err := os.Stat(root + "cmd/" + filepath.Base(string(m[1])) + "/main.go"); err != nil || filepath.Dir(string(m[1])) != "/usr/bin" {
					t.Errorf("%s: %s starts %s, which is not in it", packager, filepath.Base(u), m[1])
				}
			}
		}
		if !slices.ContainsFunc(d.Contents, func(c content) bool {
			return strings.HasSuffix(c.Dst, "/wireshark/plugins/loom.lua") && c.Packager == packager
		}) {
			t.Errorf("%s has no dissector", packager)
		}
		for _, want := range []string{"/usr/lib/sysusers.d/loom.conf", "/usr/share/loom/prometheus/loom.rules.yml", "/usr/share/loom/grafana", "/etc/loom"} {
			if _, ok := have[want]; !ok {
				t.Errorf("%s has no %s", packager, want)
			}
		}
	}
}

// TestScripts: the packages' scripts are sh, and do nothing where systemd does not run. An
// upgrade stops no daemon.
func TestScripts(t *testing.T) {
	d := read(t)
	if len(d.Scripts) != 3 {
		t.Errorf("scripts %v, want three", d.Scripts)
	}
	for name, file := range d.Scripts {
		if out, err := exec.Command("sh", "-n", root+file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	// With a systemctl that says what it is asked.
	text, err := os.ReadFile(root + d.Scripts["preremove"])
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(string(text), "[ -d /run/systemd/system ]", "true", 1)
	units, err := filepath.Glob(root + "deploy/systemd/*.service")
	if err != nil || len(units) < 2 {
		t.Fatalf("units %v: %v", units, err)
	}
	for arg, stops := range map[string]bool{"remove": true, "0": true, "upgrade": false, "1": false} {
		cmd := exec.Command("sh", "-c", "systemctl() { echo \"$@\"; }\n"+script, "prerm", arg)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.HasPrefix(string(out), "disable --now ") != stops {
			t.Errorf("preremove %s: %q, %v", arg, out, err)
		}
		for _, u := range units {
			if strings.Contains(string(out), " "+filepath.Base(u)) != stops {
				t.Errorf("preremove %s: %q, and there is %s", arg, out, filepath.Base(u))
			}
		}
	}
}

// TestKubernetes: the manifests are what Kubernetes takes, as far as can be said without it,
// and give leafd what its unit gives it.
func TestKubernetes(t *testing.T) {
	b, err := os.ReadFile(root + "deploy/kubernetes/leafd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]map[string]any)
	for dec := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var m map[string]any
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kinds[m["apiVersion"].(string)+" "+m["kind"].(string)] = m
	}
	if len(kinds) != 3 || kinds["v1 Namespace"] == nil || kinds["v1 ConfigMap"] == nil {
		t.Fatalf("%d objects", len(kinds))
	}
	set := kinds["apps/v1 DaemonSet"]
	text, err := yaml.Marshal(set["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var spec daemonSet
	if err := yaml.UnmarshalWithOptions(text, &spec, yaml.Strict()); err != nil {
		t.Fatalf("a field that the API does not have, or not there: %v", err)
	}
	for k, v := range spec.Selector.MatchLabels {
		if spec.Template.Metadata.Labels[k] != v {
			t.Errorf("the selector's %s=%s is not on the pods: the API refuses that", k, v)
		}
	}
	pod := spec.Template.Spec
	c := pod.Containers[0]
	unit, err := os.ReadFile(root + "deploy/systemd/leafd.service")
	if err != nil {
		t.Fatal(err)
	}
	caps := regexp.MustCompile(`(?m)^AmbientCapabilities=(.*)$`).FindSubmatch(unit)
	if want := strings.ReplaceAll(string(caps[1]), "CAP_", ""); strings.Join(c.SecurityContext.Capabilities.Add, " ") != want {
		t.Errorf("capabilities %v, and the unit has %s", c.SecurityContext.Capabilities.Add, want)
	}
	if !pod.HostNetwork || pod.TerminationGracePeriodSeconds != 70 || c.Command[0] != "/usr/bin/leafd" || !slices.Equal(c.Args, []string{"run", "-c", "/etc/loom/$(NODE).yaml"}) {
		t.Errorf("the pod is %+v", pod)
	}
	var volumes, mounts []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v["name"].(string))
	}
	for _, m := range c.VolumeMounts {
		mounts = append(mounts, m.Name)
	}
	if !slices.Equal(volumes, mounts) {
		t.Errorf("volumes %v, mounted %v", volumes, mounts)
	}
	for name, text := range kinds["v1 ConfigMap"]["data"].(map[string]any) {
		checkConfig(t, name, text.(string))
	}
}

// daemonSet has the fields of a DaemonSet's spec (apps/v1) that the manifest uses, by the
// names of the API's reference.
type daemonSet struct {
	Selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	} `yaml:"selector"`
	UpdateStrategy struct {
		Type          string `yaml:"type"`
		RollingUpdate struct {
			MaxUnavailable int `yaml:"maxUnavailable"`
			MaxSurge       int `yaml:"maxSurge"`
		} `yaml:"rollingUpdate"`
	} `yaml:"updateStrategy"`
	Template struct {
		Metadata struct {
			Labels map[string]string `yaml:"labels"`
		} `yaml:"metadata"`
		Spec podSpec `yaml:"spec"`
	} `yaml:"template"`
}

type podSpec struct {
	NodeSelector                  map[string]string   `yaml:"nodeSelector"`
	PriorityClassName             string              `yaml:"priorityClassName"`
	Tolerations                   []map[string]string `yaml:"tolerations"`
	HostNetwork                   bool                `yaml:"hostNetwork"`
	DNSPolicy                     string              `yaml:"dnsPolicy"`
	AutomountServiceAccountToken  bool                `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int                 `yaml:"terminationGracePeriodSeconds"`
	Containers                    []container         `yaml:"containers"`
	Volumes                       []map[string]any    `yaml:"volumes"`
}

type container struct {
	Name    string   `yaml:"name"`
	Image   string   `yaml:"image"`
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	Env     []struct {
		Name      string                       `yaml:"name"`
		ValueFrom map[string]map[string]string `yaml:"valueFrom"`
	} `yaml:"env"`
	SecurityContext struct {
		ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
		AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
		Capabilities             struct {
			Drop []string `yaml:"drop"`
			Add  []string `yaml:"add"`
		} `yaml:"capabilities"`
	} `yaml:"securityContext"`
	StartupProbe   probe                        `yaml:"startupProbe"`
	LivenessProbe  probe                        `yaml:"livenessProbe"`
	ReadinessProbe probe                        `yaml:"readinessProbe"`
	Resources      map[string]map[string]string `yaml:"resources"`
	VolumeMounts   []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct {
		Host string `yaml:"host"`
		Port int    `yaml:"port"`
		Path string `yaml:"path"`
	} `yaml:"httpGet"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}
