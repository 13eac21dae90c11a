//! `cargo xtask packetdrill`: a folder of scripts, which packetdrill itself runs against plumb's TCP as a shared object.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use tempfile::TempDir;

/// The shared object, which `make packetdrill` builds.
const OBJECT: &str = "target/debug/libplumb_packetdrill.so";

/// Real time after which a script, whose time is virtual, is stuck.
const PATIENCE_SECONDS: u32 = 60;

/// What `timeout` exits with when that has passed.
const TIMED_OUT: i32 = 124;

/// What a command of a script does instead: it is noted, and the shared object heeds it.
const NOTE: &str = "#!/bin/sh\necho \"$(basename \"$0\") $*\" >> \"$PLUMB_PACKETDRILL_COMMANDS\"\n";

/// The same where a script later runs what this left behind.
const NOTE_AND_RESTORE: &str = "#!/bin/sh\necho \"$(basename \"$0\") $*\" >> \"$PLUMB_PACKETDRILL_COMMANDS\"\n\
    printf '#!/bin/sh\\nrm -f \"$0\"\\n' > /tmp/sysctl_restore_$PPID.sh; chmod +x /tmp/sysctl_restore_$PPID.sh\n";

/// What happens to a script.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ScriptVerdict {
    Passed,
    Failed(String),
    Unsupported(String),
}

/// What is run.
#[derive(Debug, Default)]
struct PacketdrillOptions {
    packetdrill: PathBuf,
    system: String,
    scripts: Vec<PathBuf>,
}

/// Runs the scripts and prints those that did not pass with their reasons, then the counts; whether none failed.
///
/// # Errors
/// An argument is wrong, or packetdrill cannot be run.
pub fn run(arguments: &[String], root: &Path, out: &mut dyn Write) -> anyhow::Result<bool> {
    let options = parse(arguments)?;
    let object = root.join(OBJECT);
    if !object.exists() {
        bail!("{} is missing: run make packetdrill", object.display());
    }
    let folder = folder()?;
    let (mut passed, mut failed, mut unsupported) = (0, 0, 0);
    for script in &options.scripts {
        let verdict = verdict(script, &options, &object, folder.path())?;
        match &verdict {
            ScriptVerdict::Passed => passed += 1,
            ScriptVerdict::Failed(reason) => {
                failed += 1;
                writeln!(out, "{}: failed: {reason}", script.display())?;
            }
            ScriptVerdict::Unsupported(what) => {
                unsupported += 1;
                writeln!(out, "{}: unsupported: {what}", script.display())?;
            }
        }
    }
    writeln!(out, "{passed} passed, {failed} failed, {unsupported} unsupported")?;
    Ok(failed == 0)
}

fn parse(arguments: &[String]) -> anyhow::Result<PacketdrillOptions> {
    let mut options =
        PacketdrillOptions { system: "linux".to_owned(), ..PacketdrillOptions::default() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--packetdrill" => options.packetdrill = value()?.into(),
            "--system" => options.system.clone_from(value()?),
            path => find_scripts(Path::new(path), &mut options.scripts)?,
        }
    }
    if options.packetdrill.as_os_str().is_empty() || options.scripts.is_empty() {
        bail!("give --packetdrill FILE, and scripts or folders of them");
    }
    options.packetdrill = fs::canonicalize(&options.packetdrill)
        .with_context(|| format!("there is no {}", options.packetdrill.display()))?;
    Ok(options)
}

/// Appends a script, or those in a folder and below it.
fn find_scripts(path: &Path, scripts: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        scripts.push(
            fs::canonicalize(path).with_context(|| format!("there is no {}", path.display()))?,
        );
        return Ok(());
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path)?.collect();
    let mut paths: Vec<PathBuf> = entries?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() || path.extension().is_some_and(|extension| extension == "pkt") {
            find_scripts(&path, scripts)?;
        }
    }
    Ok(())
}

/// A folder in which scripts find the commands that they run, and change nothing by them.
fn folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let write = |path: &str, text: &str| -> anyhow::Result<()> {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it is in the folder"))?;
        fs::write(&path, text)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    };
    for name in ["sysctl", "ip", "ethtool", "tc", "setkey"] {
        write(&format!("bin/{name}"), NOTE)?;
    }
    // Scripts lie at two depths below the folder that has these.
    for common in ["common", "tcp/common"] {
        write(&format!("{common}/defaults.sh"), NOTE)?;
        write(&format!("{common}/set_sysctls.py"), NOTE_AND_RESTORE)?;
    }
    fs::create_dir_all(folder.path().join("tcp/scripts"))?;
    Ok(folder)
}

fn verdict(
    script: &Path,
    options: &PacketdrillOptions,
    object: &Path,
    folder: &Path,
) -> anyhow::Result<ScriptVerdict> {
    let bytes = fs::read(script).with_context(|| format!("cannot read {}", script.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("%{") {
        return Ok(ScriptVerdict::Unsupported(
            "code, for which packetdrill asks the kernel".to_owned(),
        ));
    }
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next().map(str::to_owned)
    };
    let is_v6 = value("--ip_version=").is_some_and(|version| version == "ipv6");
    let [version, local, gateway, remote, netmask] = if is_v6 {
        ["ipv6", "fd3d:0a0b:17d6::1", "fd3d:0a0b:17d6:8888::1", "fd3d:fa7b:d17d::1", ""]
    } else {
        ["ipv4", "192.168.0.1", "192.168.0.1", "192.0.2.1", "255.255.0.0"]
    };
    let mtu = value("--mtu=").unwrap_or_else(|| "1500".to_owned());
    let commands = folder.join("commands");
    fs::write(&commands, "")?;
    let log = folder.join("log");
    let mut command = Command::new("timeout");
    command
        .arg(PATIENCE_SECONDS.to_string())
        .arg(&options.packetdrill)
        .arg(format!("--ip_version={version}"))
        .arg(format!("--local_ip={local}"))
        .arg(format!("--gateway_ip={gateway}"))
        .arg(format!("--remote_ip={remote}"))
        .args((!is_v6).then(|| format!("--netmask_ip={netmask}")))
        .arg(format!("--mtu={mtu}"))
        .args(["--send_omit_free", "-D", "CMSG_LEVEL_IP=SOL_IP", "-D", "CMSG_TYPE_RECVERR=IP_RECVERR"])
        .arg(format!("--so_filename={}", object.display()))
        .arg(format!(
            "--so_flags=system={},ip_version={version},local_ip={local},remote_ip={remote},mtu={mtu}",
            options.system
        ))
        .arg(script)
        .current_dir(folder.join("tcp/scripts"))
        .env("PLUMB_PACKETDRILL_COMMANDS", &commands)
        .env("PATH", format!("{}:/usr/bin:/bin", folder.join("bin").display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log)?);
    let status = command.status().context("timeout, of coreutils, cannot be run")?;
    if status.code() == Some(TIMED_OUT) {
        return Ok(ScriptVerdict::Failed(format!(
            "packetdrill did not end in {PATIENCE_SECONDS} s"
        )));
    }
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    Ok(if status.success() { ScriptVerdict::Passed } else { explain(&said) })
}

/// Why packetdrill did not exit with 0, from what it said on standard error.
fn explain(said: &str) -> ScriptVerdict {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    if let Some(what) = lines().find_map(|line| line.strip_prefix("plumb: unsupported: ")) {
        return ScriptVerdict::Unsupported(what.to_owned());
    }
    let last = lines().next_back().unwrap_or("packetdrill said nothing");
    // Without the script, which is named before.
    let reason = last.split_once(".pkt:").map_or(last, |(_, reason)| reason).to_owned();
    // Features that packetdrill lacks, or a command of the script that is not installed.
    let beyond = [
        "syntax error",
        "semantic error",
        "unknown symbol",
        "' unknown",
        "unrecognized option",
        "error executing",
    ];
    if beyond.iter().any(|phrase| said.contains(phrase)) {
        return ScriptVerdict::Unsupported(reason);
    }
    ScriptVerdict::Failed(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_stack_lacks_is_no_failure() {
        let unsupported = "plumb: unsupported: the flag 0x80\nx.pkt:7: error\n";
        assert_eq!(explain(unsupported), ScriptVerdict::Unsupported("the flag 0x80".to_owned()));
        let failed = "a.pkt:4: error handling packet: bad value\n";
        let reason = "4: error handling packet: bad value";
        assert_eq!(explain(failed), ScriptVerdict::Failed(reason.to_owned()));
    }
}
