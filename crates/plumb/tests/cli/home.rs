//! A home of a test's own to run the program in, how commands are expected to end, and users who are not root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{self, PLUMB, skip, wait_for};

/// Debian's `nobody`.
pub const NOBODY: u32 = 65_534;

/// A home with its own store and no settings of the user's.
pub struct TestHome {
    directory: TempDir,
}

/// How a run of the program ended.
pub struct ProgramOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl TestHome {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn home(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    /// Writes a file; its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn store(&self) -> PathBuf {
        self.path("plumb.db")
    }

    /// A program with these words, about to be run.
    pub fn command_of(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.home())
            .env("HOME", self.home())
            .env("XDG_RUNTIME_DIR", self.home())
            .env("PLUMB_STORE", self.store())
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
        let settings = ["XDG_DATA_HOME", "PLUMB_SSH", "LC_ALL", "LC_CTYPE"];
        for variable in settings.into_iter().chain(["NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"]) {
            command.env_remove(variable);
        }
        command
    }

    /// `plumb` with these words, about to be run.
    pub fn command(&self, words: &[&str]) -> Command {
        self.command_of(PLUMB, words)
    }

    /// The same, started, with pipes for what it writes.
    pub fn spawn(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn plumb(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub fn run(&self, words: &[&str]) -> ProgramOutput {
        ProgramOutput::of(self.plumb(words))
    }

    /// Expects success.
    pub fn assert_success(&self, words: &[&str]) -> ProgramOutput {
        let outcome = self.run(words);
        assert_eq!(outcome.code, Some(0), "{words:?}\n{}\n{}", outcome.stdout, outcome.stderr);
        outcome
    }

    /// Expects success; standard output.
    pub fn stdout_of(&self, words: &[&str]) -> String {
        self.assert_success(words).stdout
    }

    /// Expects this code and one error with these words.
    pub fn assert_error(&self, words: &[&str], code: i32, told: &[&str]) {
        assert_ended(&self.plumb(words), code, told);
    }

    /// Expects one error with these words, of usage or of anything else.
    pub fn assert_refused(&self, words: &[&str], told: &[&str]) {
        let output = self.plumb(words);
        assert_ended(&output, if output.status.code() == Some(2) { 2 } else { 4 }, told);
    }

    /// A stored run of two cells, in a fifth of a second.
    pub fn with_stored_run(&self) -> &Self {
        self.assert_success(&[
            "run",
            "latency.local",
            "--quick",
            "--launches=3",
            "--set=mechanism=pipe,eventfd",
            "--set=size=8",
            "--set=placement=same-cpu",
        ]);
        self
    }

    /// Writes a plan of one cell whose blocks last that long, so that their worker and peer are there
    /// to be found; its name.
    pub fn plan_of_blocks(&self, block: Duration, launches: u32) -> &'static str {
        let block_ms = block.as_millis();
        // A round trip takes two microseconds at least; no plan may ask for more samples.
        let samples_max = (block.as_micros() / 2).min(10_000_000);
        let plan = format!(
            "[limits]\nblock = \"{block_ms}ms\"\nsamples_max = {samples_max}\npasses = 1\n\
             launches_min = {launches}\nlaunches_max = {launches}\n\
             [[experiment]]\nid = \"latency.local\"\n[experiment.factors]\n\
             mechanism = \"pipe\"\nsize = 64\nplacement = \"same-cpu\"\n"
        );
        self.file("long.toml", plan);
        "long.toml"
    }

    /// A run that would last for a while, once its first worker has its peer.
    pub fn start_measurement(&self, words: &[&str]) -> RunningMeasurement {
        let mut measuring = RunningMeasurement { child: Some(self.spawn(words)) };
        wait_for("a peer process", || {
            measuring.descendant("__peer").is_some() || measuring.ended()
        });
        measuring
    }
}

impl ProgramOutput {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output as one JSON document.
    pub fn json(&self) -> Value {
        document(&self.stdout)
    }
}

/// A running plumb; killed when dropped.
pub struct RunningMeasurement {
    child: Option<Child>,
}

impl RunningMeasurement {
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The process below this one that was started with a word such as `__peer`.
    pub fn descendant(&self, word: &str) -> Option<u32> {
        descendant_with(self.pid(), word)
    }

    /// Every process below this one.
    pub fn descendants(&self) -> Vec<u32> {
        support::with_descendants(self.pid()).split_off(1)
    }

    pub fn ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn outcome(mut self) -> ProgramOutput {
        ProgramOutput::of(self.child.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for RunningMeasurement {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Standard output as one JSON document, whatever the exit code.
pub fn json_of(output: &Output) -> Value {
    document(&text(&output.stdout))
}

/// Checks a document against the published schema of this name, which it bears.
pub fn assert_valid(found: &Value, schema: &str) {
    assert_eq!(found["schema"], schema, "{found}");
    let file = format!("../../docs/schema/{}.json", schema.replace('/', "-"));
    let published = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let validator = jsonschema::validator_for(&document(&published)).unwrap();
    let faults: Vec<String> = validator
        .iter_errors(found)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{schema}: {faults:?}");
}

/// Expects this exit code and these words on standard error; of a failure of plumb's own, one message.
pub fn assert_ended(output: &Output, code: i32, told: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}\n{}", text(&output.stdout));
    for part in told {
        assert!(said.contains(part), "no '{part}' in\n{said}");
    }
    assert!(!said.contains("plumb has a bug"), "{said}");
    let errors = said.lines().filter(|line| line.starts_with("error: ")).count();
    assert!(code == 0 || errors <= 1, "one clear message: {said}");
}

pub fn installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        skip(&format!("{program} is not installed; run 'make setup'"));
    }
    found.status.success()
}

/// The process below another, at any depth, that was started with this word.
pub fn descendant_with(process: u32, word: &str) -> Option<u32> {
    let below = support::with_descendants(process).into_iter().skip(1);
    below.into_iter().find(|one| support::command_line(*one).iter().any(|found| found == word))
}

/// Whether a process exists and does not merely wait to be reaped.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Whether a process has a thread of this name: what it is doing.
pub fn has_thread(process: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.into_iter().any(|found| found.trim() == name)
}

/// Devices of the network namespace that the tests run in.
pub fn devices() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").unwrap().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

pub fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t")
}

/// A directory with a copy of the program that everybody may run: the way to the built one may be closed.
pub fn public_copy() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("plumb");
    // By a process of its own: one that another test starts meanwhile would inherit the descriptor that
    // is written to, and the kernel runs no file that may still be written.
    let copied = Command::new("cp").args([PLUMB.as_ref(), program.as_os_str()]).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    directory
}

/// A program as `nobody`, with a /dev/net/tun of this mode that it alone sees: without udev it is root's.
pub fn as_nobody(program: &Path, tun_mode: &str) -> Command {
    let script = format!(
        "mount -t tmpfs none /dev/net && mknod -m {tun_mode} /dev/net/tun c 10 200 && exec \"$@\""
    );
    let user = NOBODY.to_string();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", "setpriv"]);
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program);
    command.current_dir("/").stdin(Stdio::null());
    command
}
