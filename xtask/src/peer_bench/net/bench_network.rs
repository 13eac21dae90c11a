//! Two network namespaces that a veth joins, for as long as this process lasts.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// The client's address.
const CLIENT: &str = "10.78.0.1";
/// The server's address.
pub(super) const SERVER: &str = "10.78.0.2";

/// A network namespace, held by a process that ends when its input does: with this one, at the latest.
#[derive(Debug)]
pub(super) struct BenchNamespace(Child);

impl BenchNamespace {
    fn new() -> anyhow::Result<Self> {
        let child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("unshare(1) cannot be run")?;
        let mut namespace = Self(child);
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let of = format!("/proc/{}/ns/net", namespace.0.id());
        // It has left this one once the link says so; it says nothing itself.
        while std::fs::read_link(&of).map_or(true, |link| link == own) {
            if let Some(status) = namespace.0.try_wait()? {
                bail!("no namespace: unshare ended with {status}");
            }
            std::thread::yield_now();
        }
        Ok(namespace)
    }

    fn run(&self, line: &str) -> anyhow::Result<()> {
        let output = Command::new("nsenter")
            .args(["-t", &self.0.id().to_string(), "-n"])
            .args(line.split_whitespace())
            .output()
            .context("nsenter(1) cannot be run")?;
        if !output.status.success() {
            bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// A command in it, on a CPU.
    pub(super) fn words(&self, cpu: &str, command: Vec<String>) -> Vec<String> {
        let pid = self.0.id().to_string();
        let mut words: Vec<String> =
            ["nsenter", "-t", &pid, "-n", "taskset", "-c", cpu].map(str::to_owned).into();
        words.extend(command);
        words
    }

    /// Where the kernel lists who listens in it.
    pub(super) fn tables(&self) -> [String; 4] {
        ["tcp", "tcp6", "udp", "udp6"].map(|table| format!("/proc/{}/net/{table}", self.0.id()))
    }
}

impl Drop for BenchNamespace {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two namespaces and a veth between.
#[derive(Debug)]
pub(super) struct BenchNetwork {
    pub(super) near: BenchNamespace,
    pub(super) far: BenchNamespace,
}

impl BenchNetwork {
    pub(super) fn new() -> anyhow::Result<Self> {
        let (near, far) = (BenchNamespace::new()?, BenchNamespace::new()?);
        near.run(&format!("ip link add race0 type veth peer name race0 netns {}", far.0.id()))?;
        for (side, address) in [(&near, CLIENT), (&far, SERVER)] {
            side.run(&format!("ip address add {address}/24 dev race0"))?;
            side.run("ip link set lo up")?;
            side.run("ip link set race0 up")?;
        }
        Ok(Self { near, far })
    }
}
