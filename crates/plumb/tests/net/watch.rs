//! `plumb net --watch` on a terminal: it draws, ends as it is asked to, and leaves the terminal as it was.
//!
//! Left out: what is drawn at which size, which the program's own tests look at.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Bench, PLUMB, agent};

/// What a terminal is told to show the program's own screen, the old one again, and the cursor.
const OWN_SCREEN: &str = "\x1b[?1049h";
const OLD_SCREEN: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// A measurement under way on a terminal of its own.
struct Watched {
    child: Child,
    stdout: ChildStdout,
    shown: String,
}

impl Watched {
    /// Starts it; nothing, visibly, where there is no program that makes terminals.
    #[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
    fn start(bench: &Bench, words: &str) -> Option<Self> {
        let command = format!(
            "stty cols 80 rows 24; echo pid $$; exec {PLUMB} net --via '{}' 127.0.0.1 --watch {words}",
            agent()
        );
        let child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .env("PLUMB_STORE", bench.directory.path().join("plumb.db"))
            .env("HOME", bench.directory.path())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            println!("skipped: script is not installed; run 'make setup'");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "script is not installed");
            return None;
        };
        let stdout = child.stdout.take().expect("a pipe");
        Some(Self { child, stdout, shown: String::new() })
    }

    /// Reads on until this was shown.
    fn wait_for(&mut self, text: &str) {
        let mut buffer = [0; 4_096];
        while !self.shown.contains(text) {
            let len = self.stdout.read(&mut buffer).expect("the terminal's output");
            assert!(len > 0, "it ended before '{text}': {}", self.shown);
            self.shown += &String::from_utf8_lossy(&buffer[..len]);
        }
    }

    fn press(&mut self, key: &str) {
        let keyboard = self.child.stdin.as_mut().expect("a pipe");
        keyboard.write_all(key.as_bytes()).expect("it takes keys");
    }

    fn terminate(&mut self) {
        let pid = self.shown.split("pid ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let pid = pid.expect("its number").to_owned();
        let killed = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(killed.expect("kill runs").success());
    }

    /// What was shown in all, and the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).expect("the terminal's output");
        self.shown += &String::from_utf8_lossy(&rest);
        (self.shown, self.child.wait().expect("an end").code())
    }
}

#[test]
fn it_ends_as_asked_with_what_there_is_and_leaves_the_terminal_as_it_was() {
    let bench = Bench::new();
    for way in ["q", "\x03", "SIGTERM"] {
        let Some(mut watched) = Watched::start(&bench, "--idle 300ms --only idle,up -t 60s") else {
            return;
        };
        watched.wait_for(OWN_SCREEN);
        // The name of the phase that is to be cut short, on the screen.
        watched.wait_for("up:");
        if way == "SIGTERM" {
            watched.terminate();
        } else {
            watched.press(way);
        }
        let (shown, code) = watched.end();
        assert_eq!(code, Some(130), "{way:?}: {shown}");
        let (_, after) = shown.rsplit_once(OLD_SCREEN).expect("the old screen is back");
        assert!(!after.contains(OWN_SCREEN) && after.contains(CURSOR), "{way:?}: {shown}");
        for part in ["stopped: what is above is what there was", "watched: ", "Idle"] {
            assert!(after.contains(part), "{way:?}: no '{part}' in {after}");
        }
    }
}

#[test]
fn left_alone_it_draws_both_phases_and_prints_its_result() {
    let bench = Bench::new();
    let words = "--idle 300ms -t 700ms --warm-up 100ms --color never";
    let Some(mut watched) = Watched::start(&bench, words) else { return };
    watched.wait_for("down:");
    let (shown, code) = watched.end();
    assert_eq!(code, Some(0), "{shown}");
    let (screen, after) = shown.rsplit_once(OLD_SCREEN).expect("the old screen is back");
    assert!(screen.contains("Ctrl-C") && screen.contains("drawn"), "{screen}");
    assert!(!screen.contains("[38;5"), "without colours there are none: {screen}");
    for part in ["Idle", "Down, from there to here", "Up, from here to there", "watched: "] {
        assert!(after.contains(part), "no '{part}' in {after}");
    }
}
