//! Alerts, dashboard and the autoscaler's rule of `packaging/monitoring`, in a real Prometheus that scrapes a real
//! terminator.

mod serving;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use serving::*;

/// Prometheus takes the rules and evaluates each of them, the dashboard's expressions are right and about labels
/// that there are, and the autoscaler's metric counts full handshakes.
#[test]
fn a_prometheus_scrapes_a_terminator() {
    let site = Site::new();
    let metrics = free_address();
    let config = site.config("127.0.0.1:0", &format!("metrics.listen = \"{metrics}\"\n"));
    let mut server = serve(&config);
    let address = server.listening();
    let Some(prometheus) = Prometheus::start(&site, metrics) else {
        return;
    };

    eventually("it scrapes the terminator", || {
        prometheus.value("up{job=\"widelane\"}") == Some(1.0)
    });
    // A client closes right after its handshake, so that no backend is missed. A rate is more than nothing when a
    // later scrape has counted more than an earlier one.
    let rate = autoscaling_query();
    eventually("the autoscaler's metric grows", || {
        connect(address, &site.path("a.pem")).expect("TLS");
        prometheus.value(&rate).is_some_and(|value| value > 0.0)
    });

    for (title, expression, legend) in dashboard() {
        let result = prometheus.query(&expression);
        let series = result.as_array().expect("series");
        // Refusals, failures and full passes need not be.
        let Some(first) = series.first() else {
            continue;
        };
        for label in labels(&legend) {
            let value = first["metric"].get(label);
            assert!(value.is_some(), "{title}: {label} is none of {first}");
        }
    }
    let buckets = prometheus.query("widelane_handshake_duration_seconds_bucket");
    assert!(buckets.as_array().is_some_and(|all| all.len() > 5));

    let mut rules = Value::Null;
    eventually("each rule was evaluated", || {
        rules = prometheus.get("/api/v1/rules?type=alert");
        all_rules(&rules).all(|rule| rule["health"] != "unknown")
    });
    assert!(all_rules(&rules).count() >= 10, "{rules}");
    for rule in all_rules(&rules) {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}

/// Each panel is in a place of its own and each query has a name of its own, or Grafana draws them over one another.
#[test]
fn the_dashboards_panels_do_not_overlap() {
    let dashboard = json("grafana.json");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut taken = std::collections::BTreeMap::new();
    let mut numbers = std::collections::BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(numbers.insert(panel["id"].as_u64().expect("a number")), "{title}");
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(place("x") + place("w") <= 24, "{title}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                let other = taken.insert((x, y), title);
                assert_eq!(other, None, "{title}");
            }
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().expect("targets");
        let names = targets.iter().map(|target| target["refId"].as_str());
        let names: std::collections::BTreeSet<_> = names.collect();
        assert_eq!(names.len(), targets.len(), "{title}");
    }
    assert!(panels.len() >= 10);
}

fn all_rules(rules: &Value) -> impl Iterator<Item = &Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten())
}

/// Title, expression and legend of each query of the dashboard, with Grafana's variables filled in.
fn dashboard() -> Vec<(String, String, String)> {
    let dashboard = json("grafana.json");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            let expression = text(&target["expr"])
                .replace("$instance", ".*")
                .replace("$__rate_interval", "1m");
            assert!(!expression.contains('$'), "{expression}");
            let legend = text(&target["legendFormat"]);
            queries.push((text(&panel["title"]), expression, legend));
        }
    }
    assert!(queries.len() >= 10);
    queries
}

/// Labels that a legend names by `{{label}}`.
fn labels(legend: &str) -> impl Iterator<Item = &str> {
    let parts = legend.split("{{").skip(1);
    parts.map(|part| part.split("}}").next().expect("a part").trim())
}

/// The query of the rule for prometheus-adapter, filled in for one pod as the adapter does it.
fn autoscaling_query() -> String {
    let text = fs::read_to_string(monitoring("prometheus-adapter.yaml")).expect("readable");
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("metricsQuery: '"));
    let query = line.and_then(|line| line.strip_suffix('\'')).expect("a query");
    let query = query
        .replace("<<.Series>>", "widelane_handshakes_total")
        .replace("<<.LabelMatchers>>", "namespace=\"edge\",pod=~\"edge-0\"")
        .replace("<<.GroupBy>>", "pod");
    assert!(!query.contains("<<"), "{query}");
    query
}

fn monitoring(file: &str) -> PathBuf {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
    packaging.join(file).canonicalize().expect("a file")
}

fn json(file: &str) -> Value {
    let text = fs::read_to_string(monitoring(file)).expect("readable");
    serde_json::from_str(&text).expect("JSON")
}

/// A Prometheus with our alerts that scrapes one terminator, as the pod `edge-0`.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    /// `None`: it is not installed.
    fn start(site: &Site, scraped: SocketAddr) -> Option<Self> {
        let program = installed("prometheus")?;
        let config = site.path("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n\
             - job_name: widelane\n  \
               static_configs: [{{ targets: [\"{scraped}\"], labels: {{ namespace: edge, pod: edge-0 }} }}]\n",
            monitoring("alerts.yaml"),
        );
        fs::write(&config, text).expect("written");
        let address = free_address();
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", site.path("series").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null());
        let mut process = Process::start(&mut command);
        process.line_with("Server is ready to receive web requests");
        Some(Self {
            address,
            _process: process,
        })
    }

    /// The `data` of an answer.
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).expect("Prometheus");
        // In HTTP/1.0 the end of the answer is that of the stream.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let body: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].clone()
    }

    /// The series that an expression gives now.
    fn query(&self, expression: &str) -> Value {
        let mut escaped = String::new();
        for byte in expression.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => escaped.push(byte.into()),
                _ => escaped += &format!("%{byte:02X}"),
            }
        }
        self.get(&format!("/api/v1/query?query={escaped}"))["result"].clone()
    }

    /// The value of the only series that an expression gives.
    fn value(&self, expression: &str) -> Option<f64> {
        let result = self.query(expression);
        let [series] = result.as_array()?.as_slice() else {
            return None;
        };
        series["value"][1].as_str()?.parse().ok()
    }
}
