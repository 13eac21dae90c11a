//! A page as its users measure it: plumb's web server and client, what they say to programs, and what is said where
//! nothing came. Pairing's document is looked at beside, as it is the agent's as well.

use std::net::TcpListener;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::agent_process::AgentProcess;
use crate::home::{TestHome, assert_valid, document};
use crate::support::PLUMB;

/// A web server under way, which ends with this, and what it said of itself.
struct PageServerProcess(Child, Value);

impl PageServerProcess {
    fn start(bench: &TestHome) -> Self {
        let mut command = bench.command_of(PLUMB, &["agent", "--http", "127.0.0.1:0", "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let said = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>().next();
        Self(child, said.expect("the server says where it is").unwrap())
    }
}

impl Drop for PageServerProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_page_its_server_and_a_pairing_are_documents_of_published_shapes() {
    let bench = TestHome::new();
    let server = PageServerProcess::start(&bench);
    assert_valid(&server.1, "plumb.agent/1");
    let address = server.1["address"].as_str().unwrap();
    let words = ["net", "--http", address, "--http-modes=keep-alive,http2", "--visits=2", "--json"];
    let page = document(&bench.stdout_of(&words));
    assert_valid(&page, "plumb.http/1");
    assert_eq!((&page["is_verified"], &page["ended"]), (&true.into(), &"complete".into()));
    assert_eq!(page["ways"][0]["visits"].as_array().unwrap().len(), 2, "{page}");
    let daemon = AgentProcess::start(&[]);
    let words = ["net", &daemon.host(), "--pair", &daemon.token, "--json"];
    let pair = document(&bench.stdout_of(&words));
    assert_valid(&pair, "plumb.pair/1");
}

#[test]
fn a_page_that_nobody_serves_is_an_error_with_its_fix_and_nothing_else() {
    let bench = TestHome::new();
    // A port that was free a moment ago, and that nobody listens at.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for form in [&[][..], &["--json"]] {
        let words = ["net", "--http", &free, "--http-modes=one-each,http2", "--visits=2"];
        let output = bench.plumb(&[&words[..], form].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let page = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(4), "{said}\n{page}");
        assert!(!page.contains("was verified") && !page.contains("is_verified"), "{page}");
        for part in ["no mode could fetch http://127.0.0.1", "refused", "start 'plumb agent --http"]
        {
            assert!(said.contains(part) || page.contains(part), "no '{part}' in\n{said}\n{page}");
        }
    }
}
