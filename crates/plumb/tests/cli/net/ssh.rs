//! From a clone to a first result on two fresh hosts, in the three commands that README.md says.
//!
//! The far host is a namespace with an sshd of its own and an empty home; the commands are read from README.md, and only
//! what they name is replaced: where the repository is, the compiling, and the host. Says `skipped:` without sshd.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::host_pair::HostPair;
use crate::home::{KilledOnDrop, is_root};
use crate::support::{PLUMB, skip, wait_for};

const SSHD: &str = "/usr/sbin/sshd";
const PORT: u16 = 2_222;
/// What README.md writes for the other host.
const HOST: &str = "user@host";
const REPOSITORY: &str = "REPOSITORY";

/// An sshd on the far host that lets one key in; ended when it is dropped.
struct SshServerProcess {
    _child: KilledOnDrop,
    log: PathBuf,
}

impl SshServerProcess {
    /// In namespaces of its own: its home and its run directory are empty, as on a fresh host.
    fn start(hosts: &HostPair, place: &Path) -> Self {
        for name in ["host", "user"] {
            let key = place.join(name);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(&key)
                .status();
            assert!(made.unwrap().success());
        }
        let path = |name: &str| place.join(name).display().to_string();
        let configuration = format!(
            "Port {PORT}\nListenAddress 10.77.0.2\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
             PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n",
            path("host"),
            path("user.pub"),
        );
        std::fs::write(place.join("sshd_config"), configuration).unwrap();
        let log = place.join("sshd.log");
        let script = format!(
            "mount -t tmpfs tmpfs /run && mkdir /run/sshd && mount -t tmpfs tmpfs /root && \
             exec {SSHD} -D -e -f {}",
            path("sshd_config")
        );
        let output = std::fs::File::create(&log).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = hosts.bed.in_far(|| command.spawn()).unwrap().unwrap();
        Self { _child: KilledOnDrop(child), log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// The three commands below the words that announce them.
fn commands(readme: &str) -> Vec<String> {
    let (_, rest) = readme.split_once("three commands").expect("README.md announces them");
    let block = rest.split("```").nth(1).expect("and has them in a block");
    let lines =
        block.lines().skip(1).map(|line| line.split("  #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn the_readmes_three_commands_give_a_first_result() {
    if !Path::new(SSHD).exists() {
        return skip("openssh-server is not installed; run 'make setup'");
    }
    if !is_root() {
        return skip("an sshd of its own needs root");
    }
    if !repository().join(".git").exists() {
        return skip("this is no clone, and cannot be cloned");
    }
    let Some(hosts) = HostPair::new() else { return };
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let sshd = SshServerProcess::start(&hosts, place.path());
    wait_for("sshd listens", || sshd.said().contains("Server listening"));
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let commands = commands(&readme);
    assert_eq!(commands.len(), 3, "{commands:?}");
    // As a user's ~/.ssh/config.
    let configuration = format!(
        "IdentityFile {0}/user\nUserKnownHostsFile {0}/known\nStrictHostKeyChecking accept-new\n",
        place.path().display()
    );
    std::fs::write(place.path().join("ssh_config"), configuration).unwrap();
    let ssh = format!("ssh -F {}/ssh_config", place.path().display());
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let source = repository().display().to_string();
    let built = format!("mkdir -p target/release && cp {PLUMB} target/release/plumb");
    let words = |line: &str| {
        line.split(' ')
            .map(|word| match word {
                REPOSITORY => source.as_str(),
                HOST => "root@10.77.0.2:2222",
                word => word,
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(commands[0].starts_with("git clone REPOSITORY "), "{commands:?}");
    assert!(commands[1].starts_with("cargo build --release"), "{commands:?}");
    assert!(commands[2].contains(HOST) && commands[2].contains("--install"), "{commands:?}");
    let script =
        [&words(&commands[0]), &built, &words(&commands[2])].map(String::as_str).join("\n");
    let mut command = hosts.bench.command_of("sh", &["-e", "-c", &script]);
    command.current_dir(&work).env("PLUMB_SSH", &ssh);
    // The clone of a clone that belongs to somebody else, as in a container.
    command.env("GIT_CONFIG_COUNT", "1");
    command.env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    let output = hosts.bed.in_near(|| command.output()).unwrap().unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    // Others may take the CPUs for so long that it looks as if the path had been cut (1); there is a result all the same.
    let has_result = |code: Option<i32>| matches!(code, Some(0 | 1));
    assert!(has_result(output.status.code()), "{script}\n{page}\n{said}\n{}", sshd.said());
    assert!(page.contains("10.77.0.2"), "{page}\n{said}");
    // Again without --install.
    let again = ["net", "root@10.77.0.2:2222", "--ssh", &ssh, "--only", "idle", "--idle", "300ms"];
    let output = hosts.plumb(&again);
    assert!(has_result(output.status.code()), "{}", String::from_utf8_lossy(&output.stderr));
    // The copy is what the experiments' far processes are started from as well.
    let run =
        ["run", "latency.remote", "--quick", "--launches", "1", "--set", "mechanism=tcp4,udp4"];
    let there = ["--set", "size=64", "--host", "root@10.77.0.2:2222", "--ssh", &ssh];
    let output = hosts.plumb(&[&run[..], &there].concat());
    let measured = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{measured}\n{said}\n{}", sshd.said());
    assert!(measured.contains("root@10.77.0.2:2222"), "{measured}");
}
