//! Choice of the backend of a connection, by the host name that the client asked for and by the
//! application protocol.

use std::collections::HashMap;
use std::sync::Arc;

use crate::back::backend_tls::BackendTlsConfig;
use crate::back::pool::{Check, Pool, Upstreams};
use crate::config::{HealthCheck, Listener};
use crate::material::tls::asked_for;

/// The backends of one listener.
///
/// An exact name wins over a wildcard, and a wildcard, which stands for one label, over no name. Among
/// routes for the same name, one that lists the application protocol wins over one that lists none.
#[derive(Debug)]
pub(crate) struct Routes {
    exact: HashMap<String, Vec<Route>>,
    /// The key is the name without `*.`.
    wildcard: HashMap<String, Vec<Route>>,
    any: Vec<Route>,
    default: Option<Arc<Pool>>,
}

#[derive(Clone, Debug)]
struct Route {
    /// Empty: all.
    alpn: Vec<Vec<u8>>,
    pool: Arc<Pool>,
}

impl Routes {
    /// Makes the routes. `tls_configs`: TLS to the listener's backend, and then to those of its routes.
    pub(crate) fn new(
        listener: &Listener,
        upstreams: &Upstreams,
        tls_configs: &[Option<Arc<BackendTlsConfig>>],
    ) -> Self {
        let check = |wanted: &Option<HealthCheck>| {
            wanted.clone().map(|wanted| Check {
                wanted,
                proxy_header: listener.proxy_protocol_to,
            })
        };
        let tls_config = |index: usize| tls_configs.get(index).cloned().flatten();
        let default = match &listener.backend[..] {
            [] => None,
            addresses => Some(upstreams.pool(addresses, tls_config(0), check(&listener.health_check))),
        };
        let mut routes = Self {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            any: Vec::new(),
            default,
        };
        for (index, written) in listener.routes.iter().enumerate() {
            let protocols = written.alpn.iter().map(|name| name.as_bytes().to_vec());
            let route = Route {
                alpn: protocols.collect(),
                pool: upstreams.pool(&written.backend, tls_config(1 + index), check(&written.health_check)),
            };
            if written.server_name.is_empty() {
                routes.any.push(route.clone());
            }
            for name in &written.server_name {
                let name = name.to_ascii_lowercase();
                let entry = match name.strip_prefix("*.") {
                    Some(parent) => routes.wildcard.entry(parent.to_owned()),
                    None => routes.exact.entry(name),
                };
                entry.or_default().push(route.clone());
            }
        }
        routes
    }

    /// The backend for a connection. `None`: there is none for this name and protocol.
    pub(crate) fn choose(&self, name: Option<&str>, alpn: Option<&[u8]>) -> Option<&Arc<Pool>> {
        if !self.exact.is_empty() || !self.wildcard.is_empty() {
            let name = name.map(asked_for);
            let parent = name.as_deref().and_then(|name| name.split_once('.'));
            let exact = name.as_deref().and_then(|name| self.exact.get(name));
            let wildcard = parent.and_then(|(_, parent)| self.wildcard.get(parent));
            let named = [exact, wildcard].into_iter().flatten();
            if let Some(pool) = named.filter_map(|routes| fitting(routes, alpn)).next() {
                return Some(pool);
            }
        }
        fitting(&self.any, alpn).or(self.default.as_ref())
    }
}

fn fitting<'a>(routes: &'a [Route], alpn: Option<&[u8]>) -> Option<&'a Arc<Pool>> {
    // Servers of HTTP/1.1 speak HTTP/1.0, and a route for that alone wins by its place.
    let is_for = |listed: &Vec<u8>, alpn: &[u8]| listed == alpn || (alpn == b"http/1.0" && listed == b"http/1.1");
    let lists = |route: &&Route| alpn.is_some_and(|alpn| route.alpn.iter().any(|listed| is_for(listed, alpn)));
    let listing = routes.iter().find(lists);
    let found = listing.or_else(|| routes.iter().find(|route| route.alpn.is_empty()));
    found.map(|route| &route.pool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Route as Written;

    #[test]
    fn the_most_specific_route_wins() {
        let backend = |port: u16| vec![format!("127.0.0.1:{port}").parse().unwrap()];
        let route = |names: &[&str], alpn: &[&str], port: u16| {
            let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            let mut route = Written::new(texts(names), backend(port));
            route.alpn = texts(alpn);
            route
        };
        let mut listener = Listener::new(Vec::new(), backend(1).remove(0));
        listener.routes = vec![
            route(&["*.Example.org", "x.test"], &[], 2),
            route(&["A.example.org"], &["h2"], 3),
            route(&["*.example.org"], &["h2"], 4),
            route(&[], &["imap"], 5),
            route(&["w.test"], &["http/1.1"], 6),
        ];
        let upstreams = Upstreams::default();
        let mut routes = Routes::new(&listener, &upstreams, &[]);
        let chosen = |routes: &Routes, name: &str, alpn: &str| {
            let [name, alpn] = [name, alpn].map(|text| (!text.is_empty()).then_some(text));
            let pool = routes.choose(name, alpn.map(str::as_bytes));
            pool.map_or("none".to_owned(), |pool| pool.to_string().replace("127.0.0.1:", ""))
        };
        for (name, alpn, expected) in [
            ("", "", "1"),
            ("other.org", "h2", "1"),
            ("example.org", "h2", "1"),
            ("b.example.org", "", "2"),
            ("B.EXAMPLE.ORG", "http/1.1", "2"),
            ("b.example.org.", "", "2"),
            ("X.test.", "", "2"),
            ("c.b.example.org", "", "1"),
            ("x.test", "imap", "2"),
            ("a.example.org", "h2", "3"),
            ("a.EXAMPLE.org", "http/1.1", "2"),
            ("b.example.org", "h2", "4"),
            ("", "imap", "5"),
            ("other.org", "imap", "5"),
            ("w.test", "http/1.1", "6"),
            ("w.test", "http/1.0", "6"),
            ("w.test", "h2", "1"),
        ] {
            assert_eq!(chosen(&routes, name, alpn), expected, "{name} {alpn}");
        }
        routes.default = None;
        assert_eq!(chosen(&routes, "other.org", "h2"), "none");
        assert_eq!(chosen(&routes, "", ""), "none");
    }
}
