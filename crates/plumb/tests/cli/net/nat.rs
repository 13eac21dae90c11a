//! Through a network address translator: a router between two hosts that shows one of them only its own address and a
//! port of its choosing, and lets nobody in but at ports that it was told to forward.
//!
//! Says `skipped:` where namespaces or nftables' translation are missing, and fails for that under CI=true.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use plumb_netdev::lab::{LabError, NetNamespace, RouterChain, TestBedOptions};
use serde_json::Value;

use super::agent_process::AgentProcess;
use crate::home::{TestHome, document};
use crate::support::{PLUMB, skip, wait_for};

const NFT: &str = "/usr/sbin/nft";
/// Where an agent listens behind ports that are forwarded to it, and where it takes data.
const AGENT_PORT: u16 = 8_479;
const DATA_PORT: u16 = 9_000;

/// A near host, the translator, and a far host, which knows no way to the near one's network.
struct NatNetwork {
    chain: RouterChain,
    bench: TestHome,
}

impl NatNetwork {
    /// `None`, said so, where there can be none. What the near host sends leaves by the router's address and by
    /// any port; what comes for the router at the agent's ports goes to the far host.
    fn new() -> Option<Self> {
        let chain = match RouterChain::new(1, TestBedOptions::default()) {
            Err(error @ LabError::NotPermitted { .. }) => {
                skip(&error.to_string());
                return None;
            }
            made => made.unwrap_or_else(|error| panic!("{error}")),
        };
        if !std::path::Path::new(NFT).exists() {
            skip("nftables is not installed; run 'make setup'");
            return None;
        }
        let (far, _) = chain.far_addresses();
        let (first, last) = (DATA_PORT, DATA_PORT + 9);
        // Only translation lets the two talk: what is not translated finds no way back.
        let rules = format!(
            "table ip nat {{
                chain out {{
                    type nat hook postrouting priority srcnat
                    oifname \"plumb0\" counter masquerade fully-random
                }}
                chain in {{
                    type nat hook prerouting priority dstnat
                    iifname \"plumb1\" tcp dport {{ {AGENT_PORT}, {first}-{last} }} counter dnat to {far}
                    iifname \"plumb1\" udp dport {first}-{last} counter dnat to {far}
                }}
            }}
            table ip filter {{
                chain onward {{
                    type filter hook forward priority filter; policy drop
                    ct state established,related accept
                    iifname \"plumb1\" accept
                }}
            }}"
        );
        let nat = Self { chain, bench: TestHome::new() };
        let output = nat.nft(&["-f", "-"], &rules);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("not supported") || said.contains("No such file"), "{said}");
            skip("this kernel has no nftables, or cannot translate addresses");
            return None;
        }
        let unroute = ["route", "replace", "blackhole", "10.77.0.0/24"];
        let output = within(nat.chain.far(), Command::new("ip").args(unroute));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(nat)
    }

    fn nft(&self, words: &[&str], rules: &str) -> Output {
        let mut command = Command::new(NFT);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.chain.routers()[0].enter(|| command.spawn()).unwrap().unwrap();
        // If it does not read its input, its exit status says why.
        drop(child.stdin.take().map(|mut stdin| stdin.write_all(rules.as_bytes())));
        child.wait_with_output().unwrap()
    }

    /// Connections and flows that the chain of this name has translated.
    fn translated(&self, chain: &str) -> u64 {
        let output = self.nft(&["-j", "list", "chain", "ip", "nat", chain], "");
        let found = document(std::str::from_utf8(&output.stdout).unwrap());
        let entries = found["nftables"].as_array().unwrap().iter();
        let expressions = entries.filter_map(|entry| entry["rule"]["expr"].as_array()).flatten();
        expressions.filter_map(|expression| expression["counter"]["packets"].as_u64()).sum()
    }

    /// `plumb` on the near host.
    fn plumb(&self, words: &[&str]) -> String {
        let output = within(self.chain.near(), &mut self.bench.command_of(PLUMB, words));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn net(&self, host: &str, words: &[&str]) -> Value {
        let host = format!("tls:{host}");
        let quick = ["-t", "300ms", "--warm-up=100ms", "--idle=300ms", "--no-store", "--json"];
        let found = document(&self.plumb(&[&["net", &host][..], &quick, words].concat()));
        assert_eq!(found["ended"], "complete", "{found}");
        found
    }

    /// Pairs with an agent and measures everything with it: what goes over TCP, UDP and QUIC, both ways.
    fn measure(&self, daemon: &AgentProcess, host: &str) {
        self.plumb(&["net", host, "--pair", &daemon.token]);
        let found = self.net(host, &["--only", "idle", "--mtu=30s"]);
        let probes = &found["phases"][0]["probes"];
        assert!(probes["answered"].as_u64() > Some(0), "{probes}");
        assert_eq!(found["mtu"]["path_bytes"], 1_500, "{}", found["mtu"]);
        let bare = ["--mtu=0s", "--probes", "0"];
        let found = self.net(host, &[&bare[..], &["--only", "down,up,both", "-P", "2"]].concat());
        let phases = found["phases"].as_array().unwrap();
        let flows = phases.iter().flat_map(|phase| phase["flows"].as_array().unwrap());
        let flows: Vec<&Value> = flows.collect();
        assert_eq!(flows.len(), 4, "{found}");
        for flow in flows {
            assert!(flow["received_bytes_total"].as_u64() > Some(0), "{flow}");
            assert_eq!(flow["sent_bytes_total"], flow["received_bytes_total"], "{flow}");
        }
        let found = self.net(host, &[&bare[..], &["--udp", "2mbit", "--only", "down,up"]].concat());
        let phases = found["phases"].as_array().unwrap();
        assert_eq!(phases.len(), 2, "{found}");
        for phase in phases {
            let stream = &phase["datagrams"][0];
            assert!(stream["received"].as_u64() > Some(0), "{stream}");
            assert_eq!(stream["lost_at"]["path"], 0, "{stream}");
        }
        // A short phase may pass while one side waits for a CPU.
        wait_for("answers over every transport", || {
            let found = self.net(host, &["--mtu=0s", "--request-response", "tcp,udp,tls,quic"]);
            let phases = found["phases"].as_array().unwrap();
            assert_eq!(phases.len(), 4, "{found}");
            let rate = |phase: &Value| phase["exchange"]["requests_per_second"].as_f64();
            phases.iter().all(|phase| rate(phase) > Some(0.0))
        });
    }
}

fn within(namespace: &NetNamespace, command: &mut Command) -> Output {
    namespace.enter(|| command.output()).unwrap().unwrap()
}

#[test]
fn a_host_behind_nat_measures_over_every_transport() {
    let Some(nat) = NatNetwork::new() else { return };
    let daemon = nat.chain.far().enter(|| AgentProcess::at("10.77.1.2:0", &[])).unwrap();
    nat.measure(&daemon, &daemon.host());
    assert!(nat.translated("out") > 10);
    assert_eq!(nat.translated("in"), 0);
}

#[test]
fn an_agent_behind_nat_is_reached_at_forwarded_ports() {
    let Some(nat) = NatNetwork::new() else { return };
    let place = format!("10.77.1.2:{AGENT_PORT}");
    let data = DATA_PORT.to_string();
    let daemon =
        nat.chain.far().enter(|| AgentProcess::at(&place, &["--data-port", &data])).unwrap();
    // The router's own address on the near side is all that the near host knows.
    nat.measure(&daemon, "10.77.0.2");
    assert!(nat.translated("in") > 10);
}
