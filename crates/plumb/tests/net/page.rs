//! A page as its users measure it: plumb's web server and client, what they say to programs, and what is said where
//! nothing came. Pairing's document is looked at beside, as it is the agent's as well.
//!
//! Left out: fetching, which `plumb-net` tests.

use std::net::TcpListener;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::{Bench, PLUMB, document, schema_faults};

/// A web server under way, which ends with this, and what it said of itself.
struct Server(Child, Value);

impl Server {
    fn start(bench: &Bench) -> Self {
        let mut command = bench.command(PLUMB, &["agent", "--http", "127.0.0.1:0", "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let said = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>().next();
        Self(child, said.expect("the server says where it is").unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_page_its_server_and_a_pairing_are_documents_of_published_shapes() {
    let bench = Bench::new();
    let server = Server::start(&bench);
    assert_eq!(schema_faults("plumb.agent-1", &server.1), [] as [String; 0]);
    let address = server.1["address"].as_str().unwrap();
    let words = ["net", "--http", address, "--http-ways=keep-alive,http2", "--visits=2", "--json"];
    let page = document(&bench.fine(&words));
    assert_eq!(schema_faults("plumb.http-1", &page), [] as [String; 0]);
    assert_eq!((&page["is_verified"], &page["ended"]), (&true.into(), &"complete".into()));
    assert_eq!(page["ways"][0]["visits"].as_array().unwrap().len(), 2, "{page}");
    let daemon = Daemon::start(&[]);
    let words = ["net", &daemon.host(), "--pair", &daemon.token, "--json"];
    let pair = document(&bench.fine(&words));
    assert_eq!(schema_faults("plumb.pair-1", &pair), [] as [String; 0]);
}

#[test]
fn a_page_that_nobody_serves_is_an_error_with_its_fix_and_nothing_else() {
    let bench = Bench::new();
    // A port that was free a moment ago, and that nobody listens at.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for form in [&[][..], &["--json"]] {
        let words = ["net", "--http", &free, "--http-ways=one-each,http2", "--visits=2"];
        let output = bench.plumb(&[&words[..], form].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let page = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(4), "{said}\n{page}");
        assert!(!page.contains("was compared") && !page.contains("is_verified"), "{page}");
        for part in ["no way brought http://127.0.0.1", "refused", "start 'plumb agent --http"] {
            assert!(said.contains(part) || page.contains(part), "no '{part}' in\n{said}\n{page}");
        }
    }
}
