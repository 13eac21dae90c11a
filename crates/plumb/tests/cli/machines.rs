//! Claims on one page, many machines, the processor index, models and what they predict.

use serde_json::{Value, json};

use crate::documents::valid;
use crate::home::TestHome;

const CLAIMS: &str = include_str!("../../../../docs/claims.toml");

/// An archive of this many machines whose calls follow speed with slope one half.
fn archive(machines: i32) -> String {
    let row = |i: i32| {
        let speed = 2_f64.powi(i);
        let off = if i % 2 == 0 { 1.05 } else { 0.95 };
        let [mhz, rate] = [100.0, 10.0].map(|times| times * speed);
        format!("m{i},x86,20{i:02}-01,{mhz},{},{rate}", 8.0 / speed.sqrt() * off)
    };
    let head = "host,arch,date,mhz,null_call_us,bw_tcp_MBs".to_owned();
    let rows: Vec<String> = [head].into_iter().chain((0..machines).map(row)).collect();
    rows.join("\n") + "\n"
}

fn assert_narrow(page: &str) {
    let wide: Vec<&str> = page.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn every_entry_of_the_claims_is_a_row_with_a_value_or_what_would_decide() {
    let place = TestHome::new();
    let claims = valid(&place.assert_success("claims --json"), "plumb.claims/1");
    let rows = claims["claims"].as_array().unwrap();
    assert_eq!(rows.len(), CLAIMS.matches("[[claim]]").count());
    for row in rows {
        let is_decided = ["holds", "does not hold"].contains(&row["verdict"].as_str().unwrap());
        assert!(is_decided || !row["to_decide"].as_str().unwrap().is_empty(), "{row}");
    }
    assert_narrow(&place.stdout_of("claims"));
    assert_narrow(&place.stdout_of("claims scaling.lan --details"));
    let few = place.json_of("claims --document ipc --verdict not-measured --json");
    let few = few["claims"].as_array().unwrap();
    assert!(!few.is_empty() && few.iter().all(|row| row["document"] == "ipc"));
    place.assert_errors(&[
        ("claims --document moon", 2, "scaling"),
        ("claims no.such.claim", 2, "every id"),
    ]);
}

#[test]
fn a_stored_run_decides_its_claims_on_the_page() {
    let place = TestHome::new();
    place.assert_success("run call.kernel --quick --launches=6 --set=via=libc,syscall");
    let page = place.path("claims.html");
    place.assert_success(&["claims", "ipc.call", "-o", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("ipc.call.getpid-25ns") && page.contains("call-kernel-"), "{page}");
    let rows = place.json_of("claims ipc.call.getpid-25ns --json");
    let row = &rows["claims"][0];
    assert_ne!(row["verdict"], "not measured", "{row}");
    assert!(row["figures"][0]["here"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
}

#[test]
fn the_archive_that_comes_with_plumb_gives_slopes_and_a_page() {
    let place = TestHome::new();
    let page = place.path("machines.html");
    let scale = place.assert_success(&["scale", "archive", "--json", "-o", page.to_str().unwrap()]);
    let scale = valid(&scale, "plumb.scale/1");
    let line = |metric: &str| {
        let lines = scale["lines"].as_array().unwrap().iter();
        lines.clone().find(|line| line["metric"] == metric && line["class"] == "").unwrap()
    };
    for metric in ["entry", "pipe", "tcp", "tcp-bandwidth"] {
        assert!(line(metric)["slope_ci95"][0].is_number(), "{metric}");
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("machines-tcp-bandwidth"));
    assert_narrow(&place.stdout_of("scale"));
}

#[test]
fn known_slopes_come_back_and_three_machines_give_none() {
    let place = TestHome::new();
    let many = place.file("many.csv", archive(10));
    let slope = |file: &str| place.json_of(&["scale", file, "--json"])["lines"][0].clone();
    let found = slope(&many);
    let [lo, hi] = [0, 1].map(|end| found["slope_ci95"][end].as_f64().unwrap());
    assert!(lo <= 0.5 && 0.5 <= hi && hi - lo < 0.2, "{found}");
    let few = slope(&place.file("few.csv", archive(3)));
    assert!(few["slope"].is_null() && few["points"].as_array().unwrap().len() == 3, "{few}");
}

#[test]
fn a_run_file_travels_and_names_no_host() {
    let place = TestHome::new();
    place.assert_success("run scaling.entry --quick --launches=6");
    let file = place.path("here.plumb");
    let file = file.to_str().unwrap();
    place.assert_success(&["export", "last", "--format", "plumb", "--anonymous", "-o", file]);
    let other = TestHome::new();
    let scale = other.json_of(&["scale", "archive", file, "--speed", "clock", "--json"]);
    let machines = scale["machines"].as_array().unwrap();
    let here = machines.iter().find(|machine| machine["basis"].as_str().unwrap().contains("run "));
    assert!(here.unwrap()["values"]["entry"].as_f64().is_some_and(|ns| ns > 0.0), "{here:?}");
    place.assert_errors(&[("export last --format csv --anonymous", 2, "--format plumb")]);
}

#[test]
fn an_imported_run_file_is_the_run_that_it_was_and_decides_no_claim_here() {
    let place = TestHome::new();
    place.assert_success("run call.kernel --quick --launches=6 --set=via=libc,syscall");
    let file = place.path("there.plumb");
    let file = file.to_str().unwrap();
    place.assert_success(&["export", "last", "--format", "plumb", "-o", file]);
    let here = TestHome::new();
    here.assert_success(&["import", "plumb", file]);
    let [there, imported] = [&place, &here].map(|home| home.json_of("show last --json"));
    assert_eq!(imported["results"], there["results"]);
    assert_eq!(imported["run"]["id"], there["run"]["id"]);
    assert_eq!(imported["run"]["status"], "complete");
    let rows = here.json_of("claims ipc.call.getpid-25ns --json");
    assert_eq!(rows["claims"][0]["verdict"], "not measured");
    here.assert_error(&["import", "plumb", file], 2, &["in the store already", "plumb show"]);
    let cut = here.file("cut.plumb", "{\"schema\":\"plumb.record/1\",\"record\":{");
    here.assert_error(&["import", "plumb", &cut], 2, &["damaged"]);
    here.assert_error(&["import", "iperf3", file], 2, &["plumb import plumb"]);
}

#[test]
fn machines_that_cannot_be_read_are_refused_with_the_reason() {
    let place = TestHome::new();
    for (name, text, reason) in [
        ("units.csv", "host,mhz,null_call_MBs\na,1,1\n", "null_call_us"),
        ("value.csv", "host,mhz,null_call_us\na,1,-1\n", "line 2"),
        ("empty.csv", "host,mhz,null_call_us\n", "no row"),
        ("newer.plumb", "{\"schema\":\"plumb.record/9\",\"record\":{}}", "plumb.record/9"),
        ("cut.plumb", "{\"schema\":\"plumb.record/1\",\"record\":{\"run\":{", "damaged"),
        ("other.txt", "nothing of the kind\n", "neither a run file"),
        ("slow.csv", "host,mhz,null_call_us\na,,1\n", "no machine has a speed"),
    ] {
        let file = place.file(name, text);
        place.assert_error(&["scale", &file], 2, &[reason]);
    }
    place.assert_refused("scale no-such-run", &["no-such-run"]);
    let two = "host,arch,mhz,null_call_us\nbox,x86,100,2\nbox,x86,400,1\n";
    let twins = place.json_of(&["scale", &place.file("twins.csv", two), "--json"]);
    let names = twins["machines"].as_array().unwrap().iter().map(|it| it["name"].to_string());
    assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), 2);
    assert!(twins["notes"][0].as_str().unwrap().contains("are called box:"), "{twins}");
}

#[test]
fn the_index_has_its_kernels_and_memory_beside_it() {
    let place = TestHome::new();
    let index = valid(&place.assert_success("index --launches=6 --json"), "plumb.index/1");
    assert_eq!(index["kernels"].as_array().unwrap().len(), 6);
    assert_eq!(index["memory"].as_array().unwrap().len(), 3);
    let [lo, hi] = [0, 1].map(|end| index["ci95"][end].as_f64().unwrap());
    assert!(0.0 < lo && lo <= index["index"].as_f64().unwrap() && lo < hi, "{index}");
    assert_narrow(&place.stdout_of("index --of last"));
    place.assert_success("run call.kernel --quick --launches=2 --set=call=getpid");
    place.assert_errors(&[("index --of last", 2, "plumb index")]);
}

#[test]
fn a_model_predicts_its_sizes_and_refuses_what_it_cannot_know() {
    let place = TestHome::new();
    place.assert_success(
        "run latency.local --quick --launches=6 --set=mechanism=pipe --set=placement=same-cpu \
         --set=size=1,64,1Ki,4Ki,16Ki,32Ki,64Ki",
    );
    let model = valid(&place.assert_success("model last --json"), "plumb.model/1");
    assert_eq!(model["models"].as_array().unwrap().len(), 1);
    assert!(model["score"]["predictions"].as_u64().unwrap() >= 5, "{model}");
    assert_narrow(&place.stdout_of("model last --residuals"));
    let what_if = place.assert_success("predict last --cpu 2x --rtt 1ms --size 2Ki,1Mi --json");
    let what_if = valid(&what_if, "plumb.predict/1");
    let first = &what_if["predictions"][0];
    assert!(first["predicted_ns"].as_f64() > first["now_ns"].as_f64(), "{first}");
    assert_eq!(what_if["predictions"][1]["is_extrapolated"], true);
    let score = place.json_of("predict last --score left-out --json");
    assert!(score["score"]["coverage"].is_number(), "{score}");
    let ranked = valid(&place.assert_success("sensitivity last --json"), "plumb.sensitivity/1");
    let [size] = &ranked["factors"].as_array().unwrap()[..] else { panic!("{ranked}") };
    assert_eq!((&size["factor"], &size["change"]), (&"size".into(), &65_536.0.into()));
    assert!(size["sensitivity"].as_f64().is_some_and(|it| (0.0..1.0).contains(&it)), "{size}");
    place.assert_errors(&[
        ("predict last --score parts", 2, "nothing that these models predict"),
        ("predict last --rate 0", 2, "zero"),
        ("predict last --cpu 1000000x", 2, "0.01 and 100"),
        ("predict last --mtu 9000", 2, "another MTU"),
        ("predict last --mechanism tpc4", 2, "pipe"),
        ("predict last --size 0", 2, "at least one byte"),
    ]);
}

#[test]
fn predictions_have_intervals_from_the_errors_of_those_scored_before() {
    let place = TestHome::new();
    place.assert_success(
        "run latency.local --quick --launches=2 --set=mechanism=pipe,socketpair-stream,unix-stream \
         --set=placement=same-cpu --set=size=1,64,256,1Ki,2Ki,4Ki,8Ki",
    );
    let [base, second] = ["show last", "rerun last"].map(|command| {
        place.assert_success(command);
        place.json_of("show last --json")["run"]["id"].as_str().unwrap().to_owned()
    });
    let ask = |more: &[&str]| {
        place.json_of(&[&["predict", &base, "--cpu", "0.01x", "--json"], more].concat())
    };
    // The other run's measurements are about a hundredth of these predictions.
    assert_eq!(ask(&["--score", &second])["score"]["predictions"], 21);
    let first = &ask(&[])["predictions"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let (predicted, ends) = (number(&first["predicted_ns"]), &first["interval"]);
    let [low, high] = [0, 1].map(|end| number(&ends[end]));
    // An interval from errors is symmetric as a ratio; that of a fit is symmetric in nanoseconds.
    assert!(high > 1_000.0 * low, "{first}");
    assert!((low * high / predicted.powi(2) - 1.0).abs() < 1e-3, "{first}");
}

#[test]
fn advice_is_scored_against_drawings_that_were_measured() {
    let place = TestHome::new();
    let ask = "advise --items 1000 --rtt 40ms --rate 10mbit --message 10us";
    let advice = valid(&place.assert_success(format!("{ask} --json").as_str()), "plumb.advise/1");
    assert_eq!(
        (advice["curves"].as_array().unwrap().len(), &advice["modes"][0]["interval"]),
        (3, &json!(null))
    );
    assert_eq!(advice["changes"][0]["change"], "half the round-trip time");
    place.assert_success(
        "run display.vector --quick --launches=2 --set=path=direct,unix,tcp,lan,wan,slow-lan",
    );
    let scores = place.json_of("advise --score last --json")["scores"].clone();
    assert_eq!(scores[0]["score"]["predictions"], 28, "{scores}");
    // Its round trips are in virtual time; all else is as fast as this machine happens to be meanwhile.
    let waiting = scores.as_array().unwrap().iter().find(|score| score["of"] == "stop-and-wait");
    assert!(waiting.unwrap()["score"]["error_median"].as_f64().unwrap() < 0.25, "{scores}");
    assert_narrow(&place.stdout_of("advise --score last"));
    place.assert_success("run call.kernel --quick --launches=2 --set=call=getpid");
    place.assert_errors(&[
        ("advise --score last", 2, "no drawings"),
        ("advise --items 10 --rtt 1ms", 2, "--rate"),
    ]);
}
