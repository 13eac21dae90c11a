//! Page loads: plumb's server and client, their documents, and Apache and curl as their peers, over loopback.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plumb_interop::http::page::STANDARD;
use plumb_remote::secure::Fingerprint;
use serde_json::Value;

use super::agent_process::AgentProcess;
use crate::home::{KilledOnDrop, TestHome, assert_ended, assert_valid, document};
use crate::support::{skip, wait_for};

const APACHE: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";

fn has(program: &str, word: &str) -> bool {
    Command::new(program).arg(word).output().is_ok_and(|output| output.status.success())
}

/// A server of Apache's with the page that plumb's has.
struct ApacheProcess {
    _process: KilledOnDrop,
    clear: u16,
    encrypted: u16,
    certificate: Fingerprint,
}

impl ApacheProcess {
    /// In the foreground, of one process; a port that somebody else took meanwhile is exchanged for another.
    fn start(place: &Path) -> Self {
        let pages = place.join("pages");
        for object in &STANDARD.objects {
            let name = if object.path == "/" { "index.html" } else { &object.path[1..] };
            let path = pages.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &object.body).unwrap();
        }
        // The server gives up root's rights before it reads them.
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
        let certificate = certificate(place);
        for _ in 0..8 {
            let free = || TcpListener::bind("127.0.0.1:0").unwrap();
            let ports = [free(), free()].map(|listener| listener.local_addr().unwrap().port());
            if let Some(process) = serve(place, ports) {
                let [clear, encrypted] = ports;
                return Self { _process: process, clear, encrypted, certificate };
            }
        }
        panic!("{}", std::fs::read_to_string(place.join("log")).unwrap_or_default());
    }
}

/// A certificate that nobody vouches for, with its key, in files.
fn certificate(place: &Path) -> Fingerprint {
    let run = |line: &str| {
        let words = line.split_whitespace();
        let output = Command::new("openssl").args(words).current_dir(place).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
                -keyout key.pem -out certificate.pem";
    run(made);
    Fingerprint::of(&run("x509 -in certificate.pem -outform der"))
}

/// The server, once it answers at both ports; `None` where it cannot have them.
fn serve(place: &Path, [clear, encrypted]: [u16; 2]) -> Option<KilledOnDrop> {
    let here = place.display();
    let modules = ["mpm_event", "authz_core", "dir", "mime", "ssl", "socache_shmcb", "http2"]
        .map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n"))
        .concat();
    let configuration = format!(
        "{modules}ServerRoot {here}\nServerName localhost\nPidFile {here}/pid\nErrorLog {here}/log\n\
         DefaultRuntimeDir {here}\nUser #65534\nGroup #65534\nTypesConfig /dev/null\nDocumentRoot {here}/pages\n\
         DirectoryIndex index.html\nKeepAliveTimeout 5\nListen 127.0.0.1:{clear}\n\
         Listen 127.0.0.1:{encrypted} https\nProtocols h2 h2c http/1.1\nH2Direct on\n\
         <VirtualHost 127.0.0.1:{encrypted}>\nSSLEngine on\nSSLCertificateFile {here}/certificate.pem\n\
         SSLCertificateKeyFile {here}/key.pem\n</VirtualHost>\n"
    );
    let path = place.join("configuration");
    std::fs::write(&path, configuration).unwrap();
    let mut command = Command::new(APACHE);
    command.args(["-D", "FOREGROUND", "-X", "-f"]).arg(&path).stdin(Stdio::null());
    let log = std::fs::File::create(place.join("said")).unwrap();
    command.stdout(Stdio::null()).stderr(log);
    let mut process = KilledOnDrop(command.spawn().unwrap());
    let answers = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
    let mut has_ended = false;
    wait_for("the server answers", || {
        has_ended = process.0.try_wait().unwrap().is_some();
        has_ended || (answers(clear) && answers(encrypted))
    });
    (!has_ended).then_some(process)
}

/// What plumb says about every way but HTTP/3, by its name.
fn fetched(bench: &TestHome, url: &str, pin: &str) -> Vec<(String, Value)> {
    let ways = "one-each,keep-alive,pipelined,http2";
    let words =
        ["net", "--http", url, "--http-modes", ways, "--visits", "2", "--cert-fingerprint", pin];
    let found = bench.json_of(&[&words[..], &["--json"]].concat());
    let all = found["ways"].as_array().unwrap().iter();
    all.map(|way| (way["way"].as_str().unwrap().to_owned(), way.clone())).collect()
}

#[test]
fn plumb_fetches_apaches_page_in_every_mode_over_tcp() {
    if !Path::new(APACHE).exists() || !has("openssl", "version") {
        return skip("apache2-bin or openssl is not installed; run 'make setup'");
    }
    let bench = TestHome::new();
    let apache = ApacheProcess::start(bench.home());
    let pin = apache.certificate.to_string();
    let urls = [("http", apache.clear), ("https", apache.encrypted)];
    for (scheme, port) in urls {
        let ways = fetched(&bench, &format!("{scheme}://127.0.0.1:{port}/"), &pin);
        assert_eq!(ways.len(), 4, "{ways:?}");
        for (way, found) in &ways {
            assert!(found["error"].is_null(), "{scheme}: {found}");
            assert_eq!(found["is_encrypted"], scheme == "https", "{found}");
            let visits = found["visits"].as_array().unwrap();
            assert_eq!(visits.len(), 2, "{scheme}: {found}");
            let connections = if way == "one-each" { 13 } else { 1 };
            for visit in visits {
                assert_eq!((&visit["objects"], &visit["bytes"]), (&13.into(), &50_000.into()));
                assert_eq!(visit["connections"], connections, "{scheme}: {found}");
            }
        }
    }
}

/// plumb's server, and its address.
pub(super) fn server(bench: &TestHome) -> (KilledOnDrop, SocketAddr) {
    let mut command = bench.command("agent --http 127.0.0.1:0 --json");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = KilledOnDrop(command.spawn().unwrap());
    let stdout = process.0.stdout.take().unwrap();
    let found = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>().next();
    let found = found.expect("the server prints its address").unwrap();
    assert_valid(&found, "plumb.agent/1");
    (process, found["address"].as_str().unwrap().parse().unwrap())
}

#[test]
fn a_page_its_server_and_a_pairing_are_documents_of_published_shapes() {
    let bench = TestHome::new();
    let (_server, address) = server(&bench);
    let address = address.to_string();
    let words =
        ["net", "--http", &address, "--http-modes=keep-alive,http2", "--visits=2", "--json"];
    let page = bench.json_of(&words);
    assert_valid(&page, "plumb.http/1");
    assert_eq!((&page["is_verified"], &page["ended"]), (&true.into(), &"complete".into()));
    assert_eq!(page["ways"][0]["visits"].as_array().unwrap().len(), 2, "{page}");
    let daemon = AgentProcess::start(&[]);
    let words = ["net", &daemon.host(), "--pair", &daemon.token, "--json"];
    let pair = bench.json_of(&words);
    assert_valid(&pair, "plumb.pair/1");
}

#[test]
fn a_page_that_nobody_serves_is_an_error_with_its_fix_and_nothing_else() {
    let bench = TestHome::new();
    // A port that was free a moment ago, and that nobody listens at.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let line = format!("net --http {free} --http-modes=one-each,http2 --visits=2");
    for line in [format!("{line} --json"), line] {
        let output = bench.plumb(&line);
        assert_ended(&output, 4, &["refused", "plumb agent --http"]);
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_measured_page_is_a_run_like_any_other() {
    let bench = TestHome::new();
    let (_server, address) = server(&bench);
    let address = address.to_string();
    let words = ["net", "--http", &address, "--visits", "25", "--json"];
    let found = bench.json_of(&words);
    assert_valid(&found, "plumb.http/1");
    let run = found["run"].as_str().unwrap();
    assert!(bench.stdout_of("runs").contains(run), "{run}");
    let again = bench.json_of(&["net", "--show", run, "--json"]);
    assert_eq!(again, found);
    assert!(bench.stdout_of(&["net", "--show", run]).contains("whole page"));
    let shown = bench.json_of(&["show", run, "--json"]);
    assert_valid(&shown, "plumb.run/1");
    let results = shown["results"].as_array().unwrap();
    let ways = found["ways"].as_array().unwrap();
    assert_eq!((ways.len(), results.len()), (5, 20), "{shown}");
    for way in ways {
        let mut totals: Vec<u64> = way["visits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|visit| visit["total_ns"].as_u64().unwrap())
            .collect();
        totals.sort_unstable();
        let is_it =
            |it: &&Value| (&it["factors"]["way"], &it["response"]) == (&way["way"], &"page".into());
        let median =
            results.iter().find(is_it).unwrap()["summary"]["launch_medians"][0].as_f64().unwrap();
        // Histograms round to a thousandth.
        let middle = totals[12] as f64;
        assert!((median - middle).abs() <= 0.002 * middle, "{median} {totals:?}");
    }
    assert!(bench.stdout_of(&["show", run]).contains("whole page"));
    let page = bench.stdout_of(&["report", run]);
    assert!(page.contains("net.http") && page.contains("Repeat it with"), "{page}");
    assert!(page.contains("plumb net --http") && !page.contains("plumb rerun"), "{page}");
    bench.stdout_of(&[&words[..], &["--no-store"]].concat());
    bench.stdout_of(&words);
    let compared = bench.plumb(&["compare", run, "last", "--json", "--all"]);
    let compared = document(std::str::from_utf8(&compared.stdout).unwrap());
    assert_eq!(compared["rows"].as_array().unwrap().len(), 20, "{compared}");
    let listed = bench.json_of("runs --json");
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2, "one was not to be stored: {listed}");
    bench.assert_refused(&["rerun", run], &["plumb net --http", "fix:"]);
}

#[test]
fn curl_fetches_the_page_over_http1_and_http2() {
    if !has("curl", "--version") {
        return skip("curl is not installed; run 'make setup'");
    }
    let bench = TestHome::new();
    let (_server, address) = server(&bench);
    let place = bench.path("fetched");
    let ways = [("http", "--http1.1"), ("https", "--http1.1"), ("https", "--http2")];
    for (scheme, version) in ways.into_iter().chain([("http", "--http2-prior-knowledge")]) {
        // curl 7.88 cannot use a connection of the last kind a second time, whoever serves: an object each.
        let at_a_time = if version == "--http2-prior-knowledge" { 1 } else { 13 };
        for objects in STANDARD.objects.chunks(at_a_time) {
            let mut words: Vec<String> =
                ["-sSfk", version, "-m", "60", "-w", "%{http_version} %{num_connects}\n"]
                    .map(str::to_owned)
                    .to_vec();
            let files: Vec<PathBuf> =
                (0..objects.len()).map(|index| place.with_extension(index.to_string())).collect();
            for (object, file) in objects.iter().zip(&files) {
                words.push(format!("{scheme}://{address}{}", object.path));
                words.extend(["-o".to_owned(), file.display().to_string()]);
            }
            let output = Command::new("curl").args(&words).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{scheme} {version}: {said}");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let number = if version == "--http1.1" { "1.1" } else { "2" };
            // One connection, which the first object opens.
            let expected = |index| format!("{number} {}", i32::from(index == 0));
            let lines: Vec<String> = (0..objects.len()).map(expected).collect();
            assert_eq!(told.lines().collect::<Vec<_>>(), lines, "{scheme} {version}");
            for (object, file) in objects.iter().zip(&files) {
                assert!(
                    std::fs::read(file).unwrap() == object.body,
                    "{scheme} {version}: {}",
                    object.path
                );
            }
        }
    }
}
