//! `coracle discard` and `coracle chargen`: one only reads, the other hardly ever stops.

use crate::program::{Kind, Program, eventually, pattern, service};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

pub(crate) fn r1_discard_says_nothing(kind: Kind) {
    let server = Program::run_on(kind, service("discard", kind));
    let mut stream = server.connect();
    stream.write_all(&pattern(3 << 20)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"");
    drop(stream);
    let output = server.end();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("coracle discard: stopped\n"));
}

/// A line of RFC 864, as its example shows it.
fn line(number: usize) -> String {
    let character = |at: usize| char::from(b' ' + ((number + at) % 95) as u8);
    (0..72).map(character).chain("\r\n".chars()).collect()
}

/// Reads `count` lines, from `first` on.
fn expect_lines(reader: &mut BufReader<TcpStream>, first: usize, count: usize) {
    let mut came = String::new();
    for number in first..first + count {
        came.clear();
        reader.read_line(&mut came).unwrap();
        assert_eq!(came, line(number), "line {number}");
    }
}

pub(crate) fn r1_chargen_sends_the_lines_of_the_rfc(kind: Kind) {
    assert!(line(0).starts_with(" !\"#$%&'()*+,-./0123456789:;<=>?@ABC"));
    assert!(line(0).ends_with("abcdefg\r\n") && line(1).ends_with("abcdefgh\r\n"));
    let server = Program::run_on(kind, service("chargen", kind));
    let mut reader = BufReader::new(server.connect());
    expect_lines(&mut reader, 0, 1000);
    // What is sent to it changes nothing, nor does the end of that.
    reader.get_mut().write_all(b"stop!").unwrap();
    reader.get_mut().shutdown(Shutdown::Write).unwrap();
    expect_lines(&mut reader, 1000, 50_000);
    expect_lines(&mut BufReader::new(server.connect()), 0, 10);
}

pub(crate) fn chargen_stops_when_nobody_reads(kind: Kind) {
    let server = Program::run_on(kind, service("chargen", kind));
    let mut readers: Vec<_> = (0..5).map(|_| BufReader::new(server.connect())).collect();
    readers.iter_mut().for_each(|reader| expect_lines(reader, 0, 1));
    eventually("it has stopped", || {
        let before = server.processor_time();
        thread::sleep(Duration::from_millis(200));
        server.processor_time() == before
    });
    let memory = server.memory();
    assert!(memory < 48 << 20, "{} MiB for five who do not read", memory >> 20);
    readers.iter_mut().for_each(|reader| expect_lines(reader, 1, 50_000));
}
