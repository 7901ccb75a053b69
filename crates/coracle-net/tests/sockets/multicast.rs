//! F4: datagrams to groups, on interfaces of this machine. Nothing leaves it: they have no hop to go.

use crate::harness::Harness;
use coracle_loop::demux::{Address, SocketOption};
use coracle_net::{Udp, UdpSettings};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

const LOOPBACK: u32 = 1;

type Heard = Rc<RefCell<Vec<Vec<u8>>>>;

/// A socket that hears `port` of every address; and what it has heard.
fn listener(h: &Harness, group: IpAddr, port: u16) -> (Udp, Heard) {
    let heard = Heard::default();
    let inbox = Rc::clone(&heard);
    let settings = UdpSettings { reuse_port: true, ..UdpSettings::default() };
    let udp = Udp::bind_with(&h.lp, &every(group, port), settings, move |_, _, datagram| {
        inbox.borrow_mut().push(datagram.bytes.to_vec());
    });
    (udp.expect("bind"), heard)
}

/// A socket that speaks to groups of this machine on `interface`.
fn speaker(h: &Harness, group: IpAddr, interface: u32) -> Udp {
    let udp = Udp::bind(&h.lp, &every(group, 0), |_, _, _| ()).expect("bind");
    let options = [SocketOption::MulticastInterface(interface), SocketOption::MulticastTtl(0)];
    for option in options {
        udp.set_option(&h.lp, option).expect("an option");
    }
    udp
}

fn every(family: IpAddr, port: u16) -> Address {
    match family {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into(),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into(),
    }
}

fn port(h: &Harness, udp: &Udp) -> u16 {
    udp.local_address(&h.lp).expect("an address").ip().expect("an IP address").port()
}

fn hears(h: &Harness, heard: &Heard, expected: &[&[u8]]) {
    let (look, count) = (Rc::clone(heard), expected.len());
    h.run_until(move || look.borrow().len() >= count);
    assert_eq!(heard.take(), expected);
}

/// Two groups that only this case on this backend has.
fn groups4(h: &Harness) -> [IpAddr; 2] {
    [94, 95].map(|third| IpAddr::from([239, 255, third, h.backend as u8]))
}

fn groups6(h: &Harness) -> [IpAddr; 2] {
    [94, 95].map(|third| Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, third, h.backend as u16).into())
}

fn converse(h: &Harness, groups: [IpAddr; 2], interface: u32) {
    let [group, other] = groups;
    let (first, first_heard) = listener(h, group, 0);
    let port = port(h, &first);
    let (second, second_heard) = listener(h, group, port);
    for (udp, group) in [(&first, group), (&first, other), (&second, group)] {
        udp.join_multicast(&h.lp, group, interface).expect("it joins");
    }
    let error = first.join_multicast(&h.lp, group, interface).expect_err("it has joined");
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    let [to_group, to_other] = groups.map(|group| Address::from(SocketAddr::new(group, port)));
    let speaker = speaker(h, group, interface);
    speaker.send_to(&h.lp, b"to all", &to_group);
    hears(h, &first_heard, &[b"to all"]);
    hears(h, &second_heard, &[b"to all"]);

    // Both are bound to every address: they hear the group as long as one of them is a member.
    for udp in [&first, &second] {
        udp.leave_multicast(&h.lp, group, interface).expect("it leaves");
    }
    speaker.send_to(&h.lp, b"to nobody", &to_group);
    speaker.send_to(&h.lp, b"to the rest", &to_other);
    hears(h, &first_heard, &[b"to the rest"]);
    let error = first.leave_multicast(&h.lp, group, interface).expect_err("it has left");
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");

    if interface != LOOPBACK {
        // Nothing that is sent to the loopback interface goes anywhere else.
        speaker.set_option(&h.lp, SocketOption::MulticastLoop(false)).expect("an option");
        speaker.send_to(&h.lp, b"to others", &to_other);
        self::speaker(h, group, interface).send_to(&h.lp, b"to us, too", &to_other);
        hears(h, &first_heard, &[b"to us, too"]);
    }
}

pub(crate) fn f4_group_hears_and_who_has_left_does_not(h: &Harness) {
    converse(h, groups4(h), LOOPBACK);
}

pub(crate) fn f4_group_of_ipv6_hears_and_who_has_left_does_not(h: &Harness) {
    // The loopback interface has no route for groups of IPv6, unless somebody made one.
    let Some(interface) = interfaces().into_iter().find(|&interface| reaches_groups(interface))
    else {
        return eprintln!("skipped: no interface of this machine has groups of IPv6");
    };
    converse(h, groups6(h), interface);
}

pub(crate) fn f4_refusal_to_join_names_the_group(h: &Harness) {
    let (udp, _) = listener(h, groups4(h)[0], 0);
    let error = udp.join_multicast(&h.lp, [192, 0, 2, 1].into(), LOOPBACK).expect_err("no group");
    let text = error.to_string();
    assert!(text.starts_with("cannot join 192.0.2.1 on interface 1: "), "{text}");
    let kind = if h.is_simulated() { ErrorKind::Unsupported } else { ErrorKind::InvalidInput };
    assert_eq!(error.kind(), kind, "{error}");
}

/// The interfaces of this machine, by index.
fn interfaces() -> Vec<u32> {
    let entries = std::fs::read_dir("/sys/class/net").expect("a list");
    let index = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("ifindex")).ok()?;
        text.trim().parse().ok()
    };
    entries.flatten().filter_map(index).collect()
}

/// Whether a datagram to a group can be sent there.
fn reaches_groups(interface: u32) -> bool {
    let socket = std::net::UdpSocket::bind("[::]:0").expect("a socket");
    let options = [SocketOption::MulticastInterface(interface), SocketOption::MulticastTtl(0)];
    options.iter().all(|&option| coracle_loop::demux::set_option(&socket, option).is_ok())
        && socket.send_to(b"", "[ff01::94:ffff]:9").is_ok()
}
