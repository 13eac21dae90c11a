//! Invalid input and failures: one error each, with its exit code.

use std::os::unix::fs::PermissionsExt;

use plumb_wire::capture::CaptureReader;

use super::test_home::{LinkTestHome, replies};
use crate::home::{document, json_of, text, wait_for_exit};
use crate::support::{PLUMB, skip, wait_for};

#[test]
fn invalid_options_are_rejected_with_a_valid_value() {
    let Some(bench) = LinkTestHome::new() else { return };
    for (options, name) in [
        ("--rate 0", "zero"),
        ("--rate -1mbit", "negative"),
        ("--rate fast", "10mbit"),
        ("--delay 25", "25ms"),
        ("--loss 2", "0.1%"),
        ("--preset geo-satelite", "'geo-satellite'?"),
        ("--queue fifo", "drop-tail"),
        ("--up rte=1mbit", "rate"),
        ("--up rate=trace:/no/such/file", "/no/such/file"),
        ("--rate 400gbit --delay 1h", "GiB"),
        ("--mtu 60", "68"),
        ("--schedule /no/such/file", "/no/such/file"),
        ("--name ../x", "../x"),
        ("--precision exact", "hybrid"),
        ("--report /no/dir/x", "/no/dir/x"),
        ("--pcap /no/dir/x", "/no/dir/x"),
        ("--seed -1", "--seed"),
        ("--limit 0 --rate 1mbit", "64packets"),
        ("--delay -25ms", "25ms"),
        ("--rate 400tbit", "1tbit"),
        ("--queue codel", "queue"),
        ("--limit 64packets --delay 5ms", "limit"),
        ("--hop ''", "plain"),
    ] {
        bench.assert_rejected(&[(&format!("{options} --isolated -- true"), name)]);
    }
    bench.assert_rejected(&[
        ("up lab --hosts a", "--hosts a,b"),
        ("up lab --hosts a,a", "'a'"),
        ("set nobody --rate 1mbit", "'nobody'"),
        ("set nobody --seed 1", "--seed"),
        ("set nobody --hop 1", "--hop"),
    ]);
    bench.assert_errors(&[
        ("link --isolated -- no-such-program", 127, "'no-such-program'"),
        ("link --isolated -- /etc/passwd", 126, "'/etc/passwd'"),
    ]);
}

#[test]
fn files_in_use_are_not_overwritten() {
    let Some(bench) = LinkTestHome::new() else { return };
    let trace = [("trace", "1\n2\n"), ("delays", "1ms\n2ms\n"), ("later", "4\n")];
    let files = || trace.into_iter().chain([("schedule", "5s rate=trace:later\n")]);
    for (name, content) in files() {
        bench.file(name, content);
    }
    let link = "--up rate=trace:trace --down delay=replay:delays --schedule schedule";
    for option in ["--pcap", "--pcap-far", "--report"] {
        for (name, content) in files() {
            let line = format!("{link} {option} {name} --isolated -- true");
            bench.assert_rejected(&[(&line, name)]);
            assert_eq!(std::fs::read_to_string(bench.path(name)).unwrap(), content, "{line}");
        }
    }
    bench.assert_rejected(&[
        ("up spared --hosts a,b --up rate=trace:trace --pcap trace", "trace"),
        ("--pcap both --report both --isolated -- true", "both"),
        ("--pcap-far both --report both --isolated -- true", "both"),
    ]);
}

#[test]
fn a_registry_open_to_others_is_rejected() {
    let Some(bench) = LinkTestHome::new() else { return };
    let open = bench.path("plumb");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (code, stderr) = bench.exit_and_stderr("--isolated -- true");
    assert!(code != Some(0) && stderr.contains(open.to_str().unwrap()), "{stderr}");
}

/// Runs a script, whose `$0` is this program, in new user and mount namespaces.
fn scripted(bench: &LinkTestHome, script: &str) -> Option<(Option<i32>, String)> {
    let output = bench.in_namespaces(&["--mount"], script, PLUMB)?;
    Some((output.status.code(), text(&output.stderr)))
}

#[test]
fn without_tun_or_namespaces_the_reason_is_named() {
    let Some(bench) = LinkTestHome::new() else { return };
    for (script, name) in [
        ("mount -t tmpfs none /dev/net", "modprobe tun"),
        ("echo 0 > /proc/sys/user/max_net_namespaces", "max_net_namespaces"),
        ("echo 0 > /proc/sys/user/max_pid_namespaces", "max_pid_namespaces"),
    ] {
        let script = format!("{script}\nexec \"$0\" link --isolated -- true");
        let Some((code, stderr)) = scripted(&bench, &script) else { return };
        assert!(code == Some(4) && stderr.contains(name), "{script}: {stderr}");
    }
}

#[test]
fn without_ipv6_outside_a_link_refuses_it_and_carries_ipv4() {
    let Some(bench) = LinkTestHome::with(&["python3", "unshare"]) else { return };
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
    let Some(output) = bench.in_namespaces(&["--net"], script, &outside) else { return };
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "b'version 4'\nrefused\n", "{said}");
}

#[test]
fn an_mtu_below_1280_is_flagged() {
    let Some(bench) = LinkTestHome::new() else { return };
    for (mtu, is_flagged) in [("1279", true), ("1280", false)] {
        let line = format!("link --mtu {mtu} --isolated --json -- true");
        let flags = bench.json_of(&line)["flags"].to_string();
        assert_eq!(flags.contains("1280"), is_flagged, "{mtu}: {flags}");
    }
}

#[test]
fn a_change_without_room_for_its_frames_is_refused() {
    let Some(bench) = LinkTestHome::new() else { return };
    bench.stdout_of("up small --hosts a,b");
    // Without a rate a delay needs no memory.
    bench.stdout_of("set small --delay 30ms");
    bench.stdout_of("set small --delay 1s");
    bench.assert_rejected(&[("set small --rate 100gbit", "GiB")]);
    bench.stdout_of("set small --rate 1mbit");
    bench.stdout_of("down small");
}

#[test]
fn a_link_on_the_only_cpu_is_flagged() {
    let Some(bench) = LinkTestHome::with(&["taskset"]) else { return };
    for precision in ["hybrid", "busy"] {
        let line =
            format!("--cpu-list 0 {PLUMB} link --isolated --json --precision {precision} -- true");
        let output = bench.command_of("taskset", &line).output().unwrap();
        let document = json_of(&output);
        assert!(document["flags"].to_string().contains("CPU"), "{precision}: {document}");
    }
}

#[test]
fn a_driver_that_spins_has_a_cpu_of_its_own() {
    let Some(bench) = LinkTestHome::new() else { return };
    if std::thread::available_parallelism().unwrap().get() < 2 {
        skip("one CPU");
        return;
    }
    let cpus = |options: &str| {
        let stdout = bench.stdout_of(&format!("{options} --isolated -- nproc"));
        stdout.trim().parse::<usize>().unwrap()
    };
    assert_eq!(cpus("--precision busy") + 1, cpus(""));
}

#[test]
fn a_link_outlives_its_recording_which_stays_whole() {
    let Some(bench) = LinkTestHome::with(&["ping"]) else { return };
    let place = bench.home().display().to_string();
    let script = format!(
        "mkdir '{place}/full' && mount -t tmpfs -o size=128k none '{place}/full' && cd '{place}/full' &&
        \"$0\" link --isolated --pcap seen --report ../report.json -- \\
            ping -q -c 400 -s 1400 -i 0.001 10.77.0.2
        code=$?; cp seen ..; exit $code"
    );
    let Some((code, stderr)) = scripted(&bench, &script) else { return };
    assert_eq!(code, Some(0), "{stderr}");
    assert_recording_ended(&bench, &stderr, "No space left", 800);
}

/// The recording ended with this error, which is printed at once and at the end, and has less than `most` packets.
fn assert_recording_ended(bench: &LinkTestHome, stderr: &str, error: &str, most: usize) {
    assert_eq!(stderr.matches("a recording has ended").count(), 2, "{stderr}");
    let report = document(&std::fs::read_to_string(bench.path("report.json")).unwrap());
    assert!(report["flags"].to_string().contains(error), "{report}");
    let bytes = std::fs::read(bench.path("seen")).unwrap();
    let records: Result<Vec<_>, _> = CaptureReader::new(&bytes).unwrap().collect();
    assert!((1..most).contains(&records.unwrap().len()));
}

#[test]
fn a_file_size_limit_ends_the_recording_alone() {
    let Some(bench) = LinkTestHome::with(&["ping"]) else { return };
    // The command's own file has the same limit as without a link; 25 is SIGXFSZ.
    for (before, ending) in [("", "ended with 153"), ("trap '' 25;", "ended with 1")] {
        let script = format!(
            "{before} ulimit -f 256 && exec \"$0\" link --isolated --pcap seen --report report.json -- \
                sh -c 'ping -q -c 400 -w 60 -s 1400 -i 0.001 10.77.0.2; head -c 1000000 /dev/zero > own; \
                       echo ended with $?; ping -q -c 3 -w 60 -i 0.001 10.77.0.2'"
        );
        let output = bench.command_of("sh", &["-c", &script, PLUMB]).output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{before}: {stderr}{stdout}");
        assert!(stdout.lines().any(|line| line == ending), "{before}: {stderr}{stdout}");
        // The link lost nothing, before the end of the recording or after.
        assert!(replies(&stdout)[0] >= 400 && replies(&stdout)[1] >= 3, "{stdout}");
        assert_recording_ended(&bench, &stderr, "File too large", 806);
    }
}

#[test]
fn a_link_that_ends_early_ends_its_command() {
    let Some(bench) = LinkTestHome::with(&["ip"]) else { return };
    for script in
        ["ip link del plumb0; exec sleep 1000", "trap '' TERM; ip link del plumb0; sleep 1000"]
    {
        let (code, stderr) = bench.exit_and_stderr(&["--isolated", "--", "sh", "-c", script]);
        assert_eq!(code, Some(4), "{script}: {stderr}");
        assert!(stderr.contains("the link has ended ("), "{stderr}");
    }
    bench.stdout_of("up cut --hosts a,b");
    let mut exec = bench.link("exec cut a -- sleep 1000").spawn().unwrap();
    bench.exit_and_stderr("exec cut b -- ip link del plumb0");
    assert!(!wait_for_exit(&mut exec).success());
    wait_for("the lab to be gone", || bench.names().is_empty());
}
