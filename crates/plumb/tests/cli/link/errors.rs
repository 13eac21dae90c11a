//! Bad input and trouble: one clear message each, with its way out.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use plumb_wire::capture::CaptureReader;

use super::test_home::LinkTestHome;
use crate::home::{installed, text};
use crate::support::{PLUMB, skip, wait_for};

#[test]
fn bad_options_are_refused_with_their_fix() {
    let Some(bench) = LinkTestHome::new() else { return };
    for (words, told) in [
        (["--rate", "0"].as_slice(), "zero"),
        (&["--rate", "-1mbit"], "negative"),
        (&["--rate", "fast"], "10mbit"),
        (&["--delay", "25"], "25ms"),
        (&["--loss", "2"], "0.1%"),
        (&["--preset", "geo-satelite"], "did you mean 'geo-satellite'?"),
        (&["--queue", "fifo"], "drop-tail"),
        (&["--up", "rte=1mbit"], "rate"),
        (&["--up", "rate=trace:/no/such/file"], "/no/such/file"),
        (&["--rate", "400gbit", "--delay", "1h"], "GiB"),
        (&["--mtu", "60"], "68"),
        (&["--schedule", "/no/such/file"], "cannot read the schedule"),
        (&["--name", "../x"], "no name for a link"),
        (&["--precision", "exact"], "hybrid"),
        (&["--report", "/no/dir/x"], "cannot write /no/dir/x"),
        (&["--seed", "-1"], "--seed"),
        (&["--limit", "0", "--rate", "1mbit"], "64packets"),
        (&["--delay", "-25ms"], "25ms"),
        (&["--rate", "400tbit"], "1tbit"),
        (&["--queue", "codel"], "limit nothing"),
        (&["--limit", "64packets", "--delay", "5ms"], "limit nothing"),
        (&["--hop", ""], "plain"),
    ] {
        bench.assert_refused(&[words, &["--isolated", "--", "true"]].concat(), &[told]);
    }
    let (code, said) = bench.exit_and_stderr(&["--isolated", "--", "no-such-program"]);
    assert!(code == Some(127) && said.contains("cannot start 'no-such-program'"), "{said}");
    let (code, said) = bench.exit_and_stderr(&["--isolated", "--", "/etc/passwd"]);
    assert!(code == Some(126) && said.contains("cannot start '/etc/passwd'"), "{said}");
    let words = ["--isolated", "--pcap", "/no/dir/x", "--", "true"];
    bench.assert_refused(&words, &["write the recording /no/dir/x"]);
    bench.assert_refused(&["up", "lab", "--hosts", "a"], &["--hosts a,b"]);
    bench.assert_refused(&["up", "lab", "--hosts", "a,a"], &["two hosts are called 'a'"]);
    bench.assert_refused(&["set", "nobody", "--rate", "1mbit"], &["no link 'nobody' is running"]);
    for option in ["--seed", "--hop"] {
        bench.assert_refused(&["set", "nobody", option, "1"], &[option]);
    }
}

#[test]
fn a_file_in_use_by_the_link_is_not_overwritten() {
    let Some(bench) = LinkTestHome::new() else { return };
    let at = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let precious = [("trace", "1\n2\n"), ("delays", "1ms\n2ms\n"), ("later", "4\n")];
    let schedule = format!("5s rate=trace:{}\n", at("later"));
    let all = || precious.into_iter().chain([("schedule", schedule.as_str())]);
    for (name, content) in all() {
        std::fs::write(at(name), content).unwrap();
    }
    let (rate, delay) =
        (format!("rate=trace:{}", at("trace")), format!("delay=replay:{}", at("delays")));
    let schedule_file = at("schedule");
    let link = ["--up", &rate, "--down", &delay, "--schedule", &schedule_file];
    for option in ["--pcap", "--pcap-far", "--report"] {
        for (name, content) in all() {
            let file = at(name);
            let words = [&link[..], &[option, &file, "--isolated", "--", "true"]].concat();
            bench.assert_refused(&words, &["would destroy it"]);
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), content, "{words:?}");
        }
    }
    let words = ["up", "spared", "--hosts", "a,b", "--up", &rate, "--pcap", &at("trace")];
    bench.assert_refused(&words, &["would destroy it"]);
    for option in ["--pcap", "--pcap-far"] {
        let both = at("both");
        let words = [option, &both, "--report", &both, "--isolated", "--", "true"];
        bench.assert_refused(&words, &["would destroy it"]);
    }
}

#[test]
fn a_directory_of_somebody_else_is_not_trusted_with_names() {
    let Some(bench) = LinkTestHome::new() else { return };
    let open = bench.path("plumb");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = bench.link(&["--isolated", "--", "true"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("not this user's alone"), "{said}");
}

/// Runs a script, and a link at its end, as root of namespaces of its own, in which it may spoil what it
/// likes; none where that is not allowed.
fn run_after(bench: &LinkTestHome, script: &str) -> Option<(Option<i32>, String)> {
    scripted(bench, &format!("{script}\nexec \"$0\" link --isolated -- true"))
}

/// The same of a script alone, whose `$0` is this program.
fn scripted(bench: &LinkTestHome, script: &str) -> Option<(Option<i32>, String)> {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, PLUMB])
        .env("XDG_RUNTIME_DIR", bench.home())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("unshare failed") {
        skip("user namespaces are not allowed here");
        return None;
    }
    Some((output.status.code(), said))
}

#[test]
fn without_tun_or_namespaces_the_reason_is_named() {
    let Some(bench) = LinkTestHome::new() else { return };
    for (script, told) in [
        ("mount -t tmpfs none /dev/net", "modprobe tun"),
        ("echo 0 > /proc/sys/user/max_net_namespaces", "max_net_namespaces"),
        ("echo 0 > /proc/sys/user/max_pid_namespaces", "max_pid_namespaces"),
    ] {
        let Some((code, said)) = run_after(&bench, script) else { return };
        assert_eq!(code, Some(4), "{script}: {said}");
        assert!(said.contains(told), "{script}: no '{told}' in {said}");
    }
}

#[test]
fn without_ipv6_outside_a_link_refuses_it_and_carries_ipv4() {
    let Some(bench) = LinkTestHome::new() else { return };
    if !installed("python3") || !installed("unshare") {
        return;
    }
    let inside = "import socket
print(socket.create_connection(('10.77.0.2', 4321), timeout=20).recv(9))
try: socket.create_connection(('fd77::2', 4321), timeout=20)
except ConnectionRefusedError: print('refused')";
    let outside = format!(
        "import socket, subprocess
server = socket.create_server(('127.0.0.1', 4321))
child = subprocess.Popen(['{PLUMB}', 'link', '--delay', '1ms', '--', 'python3', '-c', '''{inside}'''])
server.accept()[0].sendall(b'version 4')
raise SystemExit(child.wait())"
    );
    let script = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
        echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
        ip link set lo up && exec python3 -c \"$0\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", script, &outside])
        .env("XDG_RUNTIME_DIR", bench.home())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("unshare failed") {
        skip("user namespaces are not allowed here");
        return;
    }
    assert_eq!(text(&output.stdout), "b'version 4'\nrefused\n", "{said}");
}

#[test]
fn an_mtu_below_ipv6s_least_is_given_with_a_word_about_it() {
    let Some(bench) = LinkTestHome::new() else { return };
    let (code, said) = bench.exit_and_stderr(&["--mtu", "1279", "--isolated", "--", "true"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("hop 1 both ways: an MTU of 1279 is less than the 1280"), "{said}");
    let (_, said) = bench.exit_and_stderr(&["--mtu", "1280", "--isolated", "--", "true"]);
    assert!(!said.contains("an MTU of"), "{said}");
}

#[test]
fn a_change_without_room_for_its_frames_is_refused() {
    let Some(bench) = LinkTestHome::new() else { return };
    bench.stdout_of(&["up", "small", "--hosts", "a,b"]);
    // What has no rate is as long as one likes.
    bench.stdout_of(&["set", "small", "--delay", "30ms"]);
    bench.stdout_of(&["set", "small", "--delay", "1s"]);
    bench.assert_refused(&["set", "small", "--rate", "100gbit"], &["start a link so"]);
    bench.stdout_of(&["set", "small", "--rate", "1mbit"]);
    bench.stdout_of(&["down", "small"]);
}

#[test]
fn on_one_cpu_a_link_says_that_it_shares_it() {
    let Some(bench) = LinkTestHome::new() else { return };
    if !installed("taskset") {
        return;
    }
    for (precision, told) in [("hybrid", "one CPU for the link"), ("busy", "the only CPU")] {
        let output = Command::new("taskset")
            .args(["--cpu-list", "0", PLUMB, "link", "--isolated", "--precision", precision])
            .args(["--", "true"])
            .env("XDG_RUNTIME_DIR", bench.home())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains(told), "{said}");
    }
}

#[test]
fn a_driver_that_spins_has_a_cpu_of_its_own() {
    let Some(bench) = LinkTestHome::new() else { return };
    if std::thread::available_parallelism().unwrap().get() < 2 {
        skip("one CPU");
        return;
    }
    let script = "grep Cpus_allowed_list /proc/self/status; nproc";
    let alone = bench.stdout_of(&["--precision", "busy", "--isolated", "--", "sh", "-c", script]);
    let beside = bench.stdout_of(&["--isolated", "--", "sh", "-c", script]);
    let count = |said: &str| said.lines().last().unwrap().parse::<usize>().unwrap();
    assert_eq!(count(&alone) + 1, count(&beside), "{alone}{beside}");
}

#[test]
fn a_link_outlives_its_recording_which_stays_whole() {
    let Some(bench) = LinkTestHome::new() else { return };
    if !installed("ping") {
        return;
    }
    let place = bench.home().display().to_string();
    let script = format!(
        "mkdir '{place}/full' && mount -t tmpfs -o size=128k none '{place}/full' && cd '{place}/full' &&
        \"$0\" link --isolated --pcap seen --report ../report.json -- \\
            ping -q -c 400 -s 1400 -i 0.001 10.77.0.2
        code=$?; cp seen ..; exit $code"
    );
    let Some((code, said)) = scripted(&bench, &script) else { return };
    assert_eq!(code, Some(0), "{said}");
    // At once, and once more at the end.
    assert_eq!(said.matches("a recording has ended before the link").count(), 2, "{said}");
    let report = std::fs::read(bench.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert!(report["flags"].to_string().contains("No space left"), "{report}");
    let bytes = std::fs::read(bench.path("seen")).unwrap();
    let records: Result<Vec<_>, _> = CaptureReader::new(&bytes).unwrap().collect();
    assert!((1..800).contains(&records.unwrap().len()));
}

#[test]
fn a_file_size_limit_ends_the_recording_alone() {
    let Some(bench) = LinkTestHome::new() else { return };
    if !installed("ping") {
        return;
    }
    let place = bench.home();
    // What becomes of the command's own file is as it would be without a link: 25 is SIGXFSZ.
    for (before, ending) in [("", "ended with 153"), ("trap '' 25;", "ended with 1")] {
        let script = format!(
            "{before} cd '{}' && ulimit -f 256 && exec \"$0\" link --isolated --pcap seen --report report.json -- \
                sh -c 'ping -q -c 400 -s 1400 -i 0.001 10.77.0.2; head -c 1000000 /dev/zero > own; \
                       echo ended with $?; ping -q -c 3 -i 0.001 10.77.0.2'",
            place.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, PLUMB]).env("XDG_RUNTIME_DIR", place);
        let output = command.output().unwrap();
        let (told, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{before}: {said}{told}");
        assert!(told.lines().any(|line| line == ending), "{before}: {said}{told}");
        // The link went on: nothing of it is missing before the end, or after.
        assert!(told.contains("400 received") && told.contains("3 received"), "{before}: {told}");
        // At once, and once more at the end.
        let ended = "a recording has ended before the link";
        assert_eq!(said.matches(ended).count(), 2, "{before}: {said}");
        assert!(said.contains("File too large"), "{before}: {said}");
        let report = std::fs::read(place.join("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert!(report["flags"].to_string().contains("File too large"), "{report}");
        let bytes = std::fs::read(place.join("seen")).unwrap();
        let records: Result<Vec<_>, _> = CaptureReader::new(&bytes).unwrap().collect();
        assert!((1..806).contains(&records.unwrap().len()), "{before}");
    }
}

#[test]
fn a_link_that_ends_early_ends_its_command() {
    let Some(bench) = LinkTestHome::new() else { return };
    if !installed("ip") {
        return;
    }
    for script in
        ["ip link del plumb0; exec sleep 1000", "trap '' TERM; ip link del plumb0; sleep 1000"]
    {
        let (code, said) = bench.exit_and_stderr(&["--isolated", "--", "sh", "-c", script]);
        assert_eq!(code, Some(4), "{script}: {said}");
        let told = said.find("the link has ended (").unwrap_or_else(|| panic!("{said}"));
        assert!(said[told..].contains("the link ended before the command did"), "{said}");
    }
    bench.stdout_of(&["up", "cut", "--hosts", "a,b"]);
    let mut exec = bench.link(&["exec", "cut", "a", "--", "sleep", "1000"]).spawn().unwrap();
    bench.exit_and_stderr(&["exec", "cut", "b", "--", "ip", "link", "del", "plumb0"]);
    let mut code = None;
    wait_for("what ran in the lab to end", || {
        code = exec.try_wait().unwrap();
        code.is_some()
    });
    assert!(!code.unwrap().success());
    wait_for("the lab to be gone", || bench.names().is_empty());
}
