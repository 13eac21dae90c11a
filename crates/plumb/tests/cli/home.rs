//! A home directory for each test, expectations on commands, and users other than root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{self, PLUMB, skip, wait_for};

/// Debian's `nobody`.
pub const NOBODY: u32 = 65_534;

/// Arguments of a command: a line, split at white space outside single quotes, or a list.
pub trait Arguments {
    fn list(&self) -> Vec<String>;
}

impl Arguments for str {
    fn list(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (index, piece) in self.split('\'').enumerate() {
            match index % 2 {
                0 => words.extend(piece.split_whitespace().map(Self::to_owned)),
                _ => words.push(piece.to_owned()),
            }
        }
        words
    }
}

impl Arguments for String {
    fn list(&self) -> Vec<String> {
        self.as_str().list()
    }
}

impl<T: AsRef<str>> Arguments for [T] {
    fn list(&self) -> Vec<String> {
        self.iter().map(|word| word.as_ref().to_owned()).collect()
    }
}

impl<T: AsRef<str>, const N: usize> Arguments for [T; N] {
    fn list(&self) -> Vec<String> {
        self[..].list()
    }
}

impl<T: AsRef<str>> Arguments for Vec<T> {
    fn list(&self) -> Vec<String> {
        self[..].list()
    }
}

/// A home with its own store and without settings of the user.
pub struct TestHome {
    directory: TempDir,
}

/// Exit code and output of the program.
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

    /// A program in this home, not yet started.
    pub fn command_of(&self, program: &str, arguments: &(impl Arguments + ?Sized)) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments.list())
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

    /// `plumb` in this home, not yet started.
    pub fn command(&self, arguments: &(impl Arguments + ?Sized)) -> Command {
        self.command_of(PLUMB, arguments)
    }

    /// Starts `plumb` with pipes for its output.
    pub fn spawn(&self, arguments: &(impl Arguments + ?Sized)) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn plumb(&self, arguments: &(impl Arguments + ?Sized)) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn run(&self, arguments: &(impl Arguments + ?Sized)) -> ProgramOutput {
        ProgramOutput::of(self.plumb(arguments))
    }

    /// Expects success.
    pub fn assert_success(&self, arguments: &(impl Arguments + ?Sized)) -> ProgramOutput {
        let output = self.run(arguments);
        let ProgramOutput { stdout, stderr, .. } = &output;
        assert_eq!(output.code, Some(0), "{:?}\n{stdout}\n{stderr}", arguments.list());
        output
    }

    /// Expects success; standard output.
    pub fn stdout_of(&self, arguments: &(impl Arguments + ?Sized)) -> String {
        self.assert_success(arguments).stdout
    }

    /// Expects success; standard output as one JSON document.
    pub fn json_of(&self, arguments: &(impl Arguments + ?Sized)) -> Value {
        self.assert_success(arguments).json()
    }

    /// Expects this exit code and one error that names all of these.
    pub fn assert_error(&self, arguments: &(impl Arguments + ?Sized), code: i32, names: &[&str]) {
        assert_ended(&self.plumb(arguments), code, names);
    }

    /// Expects one error, of usage or of a failure, that names all of these.
    pub fn assert_refused(&self, arguments: &(impl Arguments + ?Sized), names: &[&str]) {
        let output = self.plumb(arguments);
        assert_ended(&output, if output.status.code() == Some(2) { 2 } else { 4 }, names);
    }

    /// Expects each command line to end with this exit code and one error that names this.
    pub fn assert_errors(&self, table: &[(&str, i32, &str)]) {
        for (line, code, name) in table {
            let output = self.plumb(*line);
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(*code), "{line}: {stderr}");
            assert_ended(&output, *code, &[name]);
        }
    }

    /// A stored run of two cells, in a fifth of a second.
    pub fn with_stored_run(&self) -> &Self {
        self.assert_success(
            "run latency.local --quick --launches=3 --set=mechanism=pipe,eventfd --set=size=8 \
             --set=placement=same-cpu",
        );
        self
    }

    /// Writes a plan of one cell with blocks of this duration, so that worker and peer can be found; its name.
    pub fn plan_of_blocks(&self, block: Duration, launches: u32) -> &'static str {
        let block_ms = block.as_millis();
        // A round trip takes at least two microseconds; a plan has at most ten million samples.
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

    /// Starts a run, and waits for the peer of its first worker.
    pub fn start_measurement(&self, arguments: &(impl Arguments + ?Sized)) -> RunningMeasurement {
        let mut measuring = RunningMeasurement { child: KilledOnDrop(self.spawn(arguments)) };
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
    child: KilledOnDrop,
}

impl RunningMeasurement {
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// The descendant with an argument such as `__peer`.
    pub fn descendant(&self, word: &str) -> Option<u32> {
        descendant_with(self.pid(), word)
    }

    /// Every process below this one.
    pub fn descendants(&self) -> Vec<u32> {
        support::with_descendants(self.pid()).split_off(1)
    }

    pub fn ended(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn outcome(mut self) -> ProgramOutput {
        let child = &mut self.child.0;
        // Both are short enough for their pipes.
        let stdout = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
        let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        ProgramOutput { code: child.wait().unwrap().code(), stdout, stderr }
    }
}

/// A process that is killed when dropped.
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Waits for the end of a process.
pub fn wait_for_exit(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_for("a process to end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
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

/// Checks a document against the published schema that it names.
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

/// Expects this exit code, and on standard error these names and at most one error.
pub fn assert_ended(output: &Output, code: i32, names: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}\n{}", text(&output.stdout));
    for name in names {
        assert!(stderr.contains(name), "no '{name}' in\n{stderr}");
    }
    assert!(!stderr.contains("plumb has a bug"), "{stderr}");
    let errors = stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert!(code == 0 || errors <= 1, "one message: {stderr}");
}

pub fn installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        skip(&format!("{program} is not installed; run 'make setup'"));
    }
    found.status.success()
}

/// The descendant of a process with this argument.
pub fn descendant_with(process: u32, word: &str) -> Option<u32> {
    let below = support::with_descendants(process).into_iter().skip(1);
    below.into_iter().find(|one| support::command_line(*one).iter().any(|found| found == word))
}

/// Whether a process exists and is not a zombie.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Whether a process has a thread of this name.
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

/// A directory with a copy of the program that everybody may run; the built one may be in a private directory.
pub fn public_copy() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("plumb");
    // By another process: a child of another test could inherit an open descriptor, and the kernel does not execute files
    // that are open for writing.
    let copied = Command::new("cp").args([PLUMB.as_ref(), program.as_os_str()]).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    directory
}

/// A program as `nobody`, with its own /dev/net/tun of this mode.
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
