//! Generators: a lexer that feeds a parser, a walk through a tree as an iterator, values that go both ways.
//!
//! ```text
//! run:   cargo run -p coracle --example 13_generator            or with a sum: … -- '2 * (3 + 4)'
//! ```
//!
//! Each is a plain function that hands out values where it has them, in the middle of a loop or of a recursion,
//! and goes on from there when the next one is wanted.

use coracle::Generator;
use coracle::generator::Resumed::Yielded;
use coracle::generator::{Status, Yielder};
use std::iter::Peekable;

fn main() {
    let text = std::env::args().nth(1).unwrap_or_else(|| "2 * (3 + 4) - 10 / 4".to_owned());
    match calculate(&text) {
        Ok(value) => println!("{text} = {value}"),
        Err(problem) => println!("{text}: {problem}"),
    }
    compare_trees();
    average();
}

// A lexer that feeds a parser. Neither is turned inside out: both are loops, and each calls the other "next".

#[derive(Clone, Copy, PartialEq)]
enum Token {
    Number(f64),
    Sign(char),
}

/// Hands out the tokens of `text`, each when the parser asks for it.
fn lex(text: &str, out: &Yielder<Token>) {
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let in_number = |c: char| c.is_ascii_digit() || c == '.';
        let length = rest.find(|c: char| !in_number(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let (word, after) = rest.split_at(length);
        out.suspend(word.parse().map_or(Token::Sign(first), Token::Number));
        rest = after.trim_start();
    }
}

type Tokens = Peekable<Generator<Token>>;

fn calculate(text: &str) -> Result<f64, String> {
    let text = text.to_owned();
    let mut tokens = Generator::new(move |out| lex(&text, out)).peekable();
    let value = sum(&mut tokens)?;
    match tokens.next() {
        None => Ok(value),
        Some(token) => Err(unexpected(Some(token))),
    }
}

fn sum(tokens: &mut Tokens) -> Result<f64, String> {
    let mut value = product(tokens)?;
    while let Some(&Token::Sign(sign @ ('+' | '-'))) = tokens.peek() {
        tokens.next();
        let other = product(tokens)?;
        value = if sign == '+' { value + other } else { value - other };
    }
    Ok(value)
}

fn product(tokens: &mut Tokens) -> Result<f64, String> {
    let mut value = factor(tokens)?;
    while let Some(&Token::Sign(sign @ ('*' | '/'))) = tokens.peek() {
        tokens.next();
        let other = factor(tokens)?;
        value = if sign == '*' { value * other } else { value / other };
    }
    Ok(value)
}

fn factor(tokens: &mut Tokens) -> Result<f64, String> {
    match tokens.next() {
        Some(Token::Number(value)) => Ok(value),
        Some(Token::Sign('-')) => Ok(-factor(tokens)?),
        Some(Token::Sign('(')) => {
            let value = sum(tokens)?;
            match tokens.next() {
                Some(Token::Sign(')')) => Ok(value),
                other => Err(unexpected(other)),
            }
        }
        other => Err(unexpected(other)),
    }
}

fn unexpected(token: Option<Token>) -> String {
    match token {
        Some(Token::Number(value)) => format!("{value} is not expected there"),
        Some(Token::Sign(sign)) => format!("{sign:?} is not expected there"),
        None => "it ends too early".to_owned(),
    }
}

// A walk through a tree. The recursion stays one, and is an iterator nevertheless.

#[derive(Default)]
struct Tree(Option<Box<Node>>);

struct Node {
    left: Tree,
    value: u32,
    right: Tree,
}

impl Tree {
    fn insert(&mut self, value: u32) {
        match &mut self.0 {
            None => {
                let (left, right) = Default::default();
                self.0 = Some(Box::new(Node { left, value, right }));
            }
            Some(node) if value < node.value => node.left.insert(value),
            Some(node) => node.right.insert(value),
        }
    }

    /// Hands out all values, the smallest first.
    fn walk(&self, out: &Yielder<u32>) {
        if let Some(node) = &self.0 {
            node.left.walk(out);
            out.suspend(node.value);
            node.right.walk(out);
        }
    }
}

/// The values of a tree that holds `values`, in order.
fn sorted(values: &[u32]) -> Generator<u32> {
    let mut tree = Tree::default();
    values.iter().for_each(|value| tree.insert(*value));
    Generator::new(move |out| tree.walk(out))
}

/// Two trees of different shapes: do they hold the same? Whoever has to know walks both at a time, and only as
/// far as they are equal.
fn compare_trees() {
    let (values, mut reversed) = ([5, 2, 8, 1, 9, 3], [3, 9, 1, 8, 2, 5]);
    println!("in order: {:?}", sorted(&values).collect::<Vec<_>>());
    println!("the same in another shape: {}", sorted(&values).eq(sorted(&reversed)));
    reversed[0] = 4;
    let differ = sorted(&values).zip(sorted(&reversed)).find(|(one, other)| one != other);
    println!("the first that differs: {differ:?}");
}

// Values both ways: each number in brings an average out.

fn average() {
    let average: Generator<f64, f64> = Generator::with_input(|out, first: f64| {
        let (mut sum, mut count) = (first, 1.0);
        loop {
            sum += out.suspend(sum / count);
            count += 1.0;
        }
    });
    for number in [1.0, 2.0, 6.0] {
        if let Ok(Yielded(average)) = average.resume(number) {
            println!("{number} makes the average {average}");
        }
    }
    assert_eq!(average.status(), Status::Suspended); // it would go on; what it holds is dropped here
}
