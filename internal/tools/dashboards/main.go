// Command dashboards writes deploy/grafana: a dashboard of the fabric, of a leaf, of a spine
// and of the workers, for Grafana 10 or newer. What they show is in panels.go; a test over a
// lab asks Prometheus each of their questions (test/netns). Run it at the top of the
// repository: go run ./internal/tools/dashboards
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	const dir = "deploy/grafana"
	for name, text := range generate() {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			log.Fatalf("dashboards: %v", err)
		}
	}
}

// A board is a dashboard. Its queries are of the instances that $node names.
type board struct {
	name, title, about string
	nodes              string // what finds the instances to choose from
	rows               []row
}

type row struct {
	title  string
	panels []panel
}

// A panel shows queries over time; with table it shows their last values, a row each.
type panel struct {
	title, about, unit string
	table              bool
	queries            []query
}

// A query is an expression of Prometheus, and what stands beside its answers. In it NODE is
// the selector of the chosen instances, and RATE the interval that fits the picture.
type query struct{ expr, legend string }

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// generate returns the dashboards by the names of their files.
func generate() map[string][]byte {
	files := make(map[string][]byte)
	for i := range boards {
		text, err := json.MarshalIndent(boards[i].model(), "", " ")
		if err != nil {
			panic(err) // it is made of strings
		}
		files[boards[i].name+".json"] = append(text, '\n')
	}
	return files
}

func (b *board) model() object {
	return object{
		"title": b.title, "uid": "loom-" + b.name, "description": b.about, "tags": []string{"loom"},
		"schemaVersion": 39, "version": 1, "editable": true, "refresh": "30s",
		"time":        object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": []any{}},
		"links":       []object{{"type": "dashboards", "title": "Loom", "tags": []string{"loom"}, "asDropdown": true, "keepTime": true}},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			{
				"name": "node", "label": "Node", "type": "query", "datasource": source, "definition": b.nodes,
				"query": object{"query": b.nodes, "refId": "node"}, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
			},
		}},
		"panels": b.panels(),
	}
}

// Places on Grafana's grid, which is 24 wide.
const (
	panelWidth, panelHeight = 8, 8
	gridWidth               = 24
)

func (b *board) panels() (all []object) {
	id, y := 0, 0
	add := func(p object, x, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		all = append(all, p)
	}
	for _, r := range b.rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []any{}}, 0, gridWidth, 1)
		y++
		x := 0
		for _, p := range r.panels {
			if x == gridWidth {
				x, y = 0, y+panelHeight
			}
			add(p.model(), x, panelWidth, panelHeight)
			x += panelWidth
		}
		y += panelHeight
	}
	return all
}

func (p *panel) model() object {
	m := object{
		"title": p.title, "description": p.about, "datasource": source, "type": "timeseries",
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []any{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	}
	if p.table {
		m["type"], m["options"] = "table", object{"showHeader": true}
		m["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true, "__name__": true, "job": true}}}}
	}
	var targets []object
	for i, q := range p.queries {
		t := object{"refId": fmt.Sprintf("%c", 'A'+i), "datasource": source, "expr": expand(q.expr), "legendFormat": q.legend}
		if p.table {
			t["instant"], t["format"] = true, "table"
		}
		targets = append(targets, t)
	}
	m["targets"] = targets
	return m
}

func expand(expr string) string {
	return strings.NewReplacer("NODE", `instance=~"$node"`, "RATE", "[$__rate_interval]").Replace(expr)
}
