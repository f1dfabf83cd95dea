#!/usr/bin/env python3
"""Random blocks, run by the extension and by a model of what the language promises

	test/fuzz/handlers.py PSQL SEED COUNT [wrap]

Handlers of all kinds, savepoints, loops, jumps, cursors, diagnostics and errors of all sorts are
put into each other at random.  The model keeps the table as a set and knows nothing of
subtransactions; result, rows, table and SQLSTATE must come out the same, and no
subtransaction, reference or snapshot may be left behind.  With wrap the blocks run
inside a PL/pgSQL function that catches their errors.  PSQL is run with the caller's
PG* environment, on a database that has the extension.
"""
import random
import subprocess
import sys

STATES = ['45000', '45001', '22012', '23505', '01001', '02000', '02001', '40001', '57014']


class Cond(Exception):
    def __init__(self, state):
        self.state = state


class Jump(Exception):
    def __init__(self, kind, target):
        self.kind = kind        # leave, iterate
        self.target = target


class Return(Exception):
    pass


class Undo(Exception):
    def __init__(self, block, handler, state):
        self.block = block
        self.handler = handler
        self.state = state


def completion(state):
    return state[:2] in ('01', '02')


def passes(state):
    return state[:2] == '40' or state in ('57014', 'TW001', 'TW004')


# ---------- programs ----------

class Gen:
    def __init__(self, rnd):
        self.r = rnd
        self.n = 0
        self.ch = 0

    def mark(self):
        self.ch += 1
        return 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'[self.ch % 62]

    def stmts(self, depth, labels, inh=False):
        return [self.stmt(depth, labels, inh) for _ in range(self.r.randint(1, 4))]

    def simple(self, labels, inh):
        r = self.r
        if inh and r.random() < 0.2:
            return ('diag',) if r.random() < 0.6 else ('resignal', r.choice([None, None, '45000', '45001', '02000', '01001']))
        k = r.random()
        if k < 0.08:
            return r.choice([('open',), ('fetch',), ('fetch',), ('close',), ('nested', r.randint(1, 6), r.random() < 0.3)])
        if k < 0.30:
            return ('ins', [r.randint(1, 6)])
        if k < 0.36:
            return ('ins', [r.randint(1, 6), r.randint(1, 6)])
        if k < 0.46:
            return ('del', r.randint(1, 6))
        if k < 0.58:
            return ('set', self.mark())
        if k < 0.76:
            return ('sig', r.choice(STATES[:6] * 4 + STATES[6:]))
        if k < 0.82:
            return ('div',)
        if k < 0.86:
            return ('count',)
        if k < 0.90:
            return ('dyn', r.randint(1, 6))
        if k < 0.985 and labels:
            name, kind = r.choice(labels)
            if kind == 'loop' and r.random() < 0.5:
                return ('iterate', name)
            return ('leave', name)
        return ('return',) if r.random() < 0.3 else ('set', self.mark())

    def stmt(self, depth, labels, inh=False):
        r = self.r
        if depth <= 0 or r.random() < 0.5:
            return self.simple(labels, inh)
        k = r.random()
        self.n += 1
        me = 'l%d' % self.n
        if k < 0.5:
            return self.block(depth - 1, labels, me, inh=inh)
        if k < 0.65:
            return ('if', r.randint(1, 6), self.stmts(depth - 1, labels, inh), self.stmts(depth - 1, labels, inh))
        kind = 'loop'
        if k < 0.8:
            return ('while', me, r.randint(1, 3), self.stmts(depth - 1, labels + [(me, kind)], inh))
        if k < 0.9:
            return ('forseries', me, r.randint(0, 4), r.choice([0, 0, 0, 1, 2, 3]), self.stmts(depth - 1, labels + [(me, kind)], inh))
        return ('fortable', me, self.stmts(depth - 1, labels + [(me, kind)], inh))

    def block(self, depth, labels, me, outermost=False, inh=False):
        r = self.r
        atomic = outermost or r.random() < 0.45
        handlers = []
        used = set()
        inner = labels + [(me, 'block')]
        for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
            kind = r.choice(['CONTINUE', 'EXIT'] + (['UNDO'] if atomic else []))
            conds = []
            general = r.random() < 0.5
            for _ in range(r.randint(1, 2)):
                c = r.choice(['SQLEXCEPTION', 'SQLEXCEPTION', 'NOT FOUND', 'SQLWARNING'] if general else STATES)
                if c not in used:
                    used.add(c)
                    conds.append(c)
            if conds:
                handlers.append((kind, conds, self.stmt(min(depth, 1), inner, True)))
        return ('block', me, atomic, handlers, self.stmts(depth, inner, inh))


def text(s, ind=1):
    t = '\t' * ind
    k = s[0]

    def body(l):
        return ''.join(text(x, ind + 1) + ';\n' for x in l)
    if k == 'ins':
        return t + 'INSERT INTO f VALUES ' + ', '.join('(%d)' % n for n in s[1])
    if k == 'del':
        return t + 'DELETE FROM f WHERE n = %d' % s[1]
    if k == 'set':
        return t + "SET main.s = main.s || '%s'" % s[1]
    if k == 'sig':
        return t + "SIGNAL SQLSTATE '%s'" % s[1]
    if k == 'div':
        return t + 'SET main.x = 1 / 0'
    if k == 'diag':
        return t + "BEGIN DECLARE st text; GET STACKED DIAGNOSTICS st = RETURNED_SQLSTATE; SET main.s = main.s || '(' || st || ')'; END"
    if k == 'resignal':
        return t + ('RESIGNAL' if s[1] is None else "RESIGNAL SQLSTATE '%s'" % s[1])
    if k == 'open':
        return t + 'OPEN c'
    if k == 'fetch':
        return t + 'FETCH c INTO main.x'
    if k == 'close':
        return t + 'CLOSE c'
    if k == 'nested':
        return t + 'SELECT nested(%d, %s)' % (s[1], 'true' if s[2] else 'false')
    if k == 'count':
        return t + 'SET main.s = main.s || (SELECT count(*) FROM f)'
    if k == 'dyn':
        return t + "EXECUTE IMMEDIATE 'INSERT INTO f VALUES (?)' USING %d" % s[1]
    if k in ('leave', 'iterate'):
        return t + k.upper() + ' ' + s[1]
    if k == 'return':
        return t + 'RETURN main.s'
    if k == 'if':
        return t + 'IF EXISTS (SELECT FROM f WHERE n = %d) THEN\n' % s[1] + body(s[2]) + t + 'ELSE\n' + body(s[3]) + t + 'END IF'
    if k == 'while':
        return t + 'BEGIN DECLARE i int DEFAULT 0; %s: WHILE i < %d DO\n' % (s[1], s[2]) + \
            t + '\tSET i = i + 1;\n' + body(s[3]) + t + 'END WHILE; END'
    if k == 'forseries':
        e = 'g' if s[3] == 0 else '1 / (%d - g)' % s[3]
        return t + '%s: FOR r AS SELECT %s AS q FROM generate_series(1, %d) g DO\n' % (s[1], e, s[2]) + body(s[4]) + t + 'END FOR'
    if k == 'fortable':
        return t + '%s: FOR r AS SELECT n FROM f ORDER BY n DO\n' % s[1] + t + '\tSET main.s = main.s || r.n;\n' + body(s[2]) + t + 'END FOR'
    if k == 'block':
        return t + '%s: BEGIN %s\n' % (s[1], 'ATOMIC' if s[2] else '') + \
            ''.join('%s\tDECLARE %s HANDLER FOR %s\n%s;\n' % (
                t, h[0], ', '.join(c if ' ' in c or c.startswith('SQL') else "SQLSTATE '%s'" % c for c in h[1]), text(h[2], ind + 2)) for h in s[3]) + \
            body(s[4]) + t + 'END'
    raise AssertionError(k)


# ---------- the model ----------

class Model:
    def __init__(self):
        self.db = set([1])
        self.s = ''
        self.steps = 0
        self.rows = 0
        self.diag = []
        self.cur = None         # how many rows the cursor has left; None: not open
        self.cur_id = 0
        self.opens = []

    def save(self):
        return set(self.db), self.rows, self.cur_id if self.cur is not None else 0

    def restore(self, before, simple=None):
        self.db = set(before[0])
        self.rows = before[1]
        if self.cur is not None and self.cur_id != before[2] and simple is None:
            self.cur = None             # it was opened in what is undone

    def find(self, frames, state, failed):
        for block, active in reversed(frames):
            if active:
                best, fit = None, 0
                for h in block[3]:
                    f = 0
                    for c in h[1]:
                        if c == state:
                            f = 2
                        elif (c == 'NOT FOUND' and state[:2] == '02') or (c == 'SQLWARNING' and state[:2] == '01') or \
                                (c == 'SQLEXCEPTION' and not completion(state)):
                            f = max(f, 1)
                    if f > fit:
                        best, fit = h, f
                if best:
                    return block, best
            if failed and block[2]:
                break
        return None

    def handle(self, frames, found, state):
        block, h = found
        if h[0] == 'UNDO':
            raise Undo(block, h, state)
        i = max(j for j, (b, a) in enumerate(frames) if b is block)
        self.action(h[2], frames[:i] + [(block, False)], block, state)
        if h[0] == 'EXIT':
            raise Jump('leave', block[1])

    def action(self, s, frames, block, state):
        self.diag.append(state)
        try:
            self.stmt(s, frames)
        except Cond as e:
            e.handler_of = getattr(e, 'handler_of', []) + [block]   # fails where that is declared
            raise
        finally:
            self.diag.pop()

    def complete(self, frames, state):
        found = self.find(frames, state, False)
        if found:
            self.handle(frames, found, state)

    def stmt(self, s, frames):
        self.steps += 1
        if self.steps > 100000:
            raise AssertionError('too long')
        before = self.save()
        try:
            self.plain(s, frames)
        except Cond as e:
            if s[0] == 'block' and s[2]:
                self.restore(before)
            elif s[0] not in ('if', 'while', 'forseries', 'fortable', 'block'):
                self.restore(before, s[0])
            if getattr(e, 'dead', False) or passes(e.state):
                e.dead = True
                raise
            # what failed inside has looked at all of these frames already, unless it
            # was an atomic block or the statement itself
            if any(a and b is h for b, a in frames for h in getattr(e, 'handler_of', [])):
                raise
            found = self.find(frames, e.state, True)
            if not found:
                raise
            self.handle(frames, found, e.state)

    def stmts(self, l, frames):
        for s in l:
            self.stmt(s, frames)

    def loop(self, name, bodies, frames):
        for run in bodies:
            try:
                run()
            except Jump as j:
                if j.target == name:
                    if j.kind == 'leave':
                        return
                    continue
                raise

    def plain(self, s, frames):
        k = s[0]
        if k == 'ins':
            for n in s[1]:
                if n in self.db:
                    raise Cond('23505')
                self.db.add(n)
            self.rows += len(s[1])
        elif k == 'dyn':
            if s[1] in self.db:
                raise Cond('23505')
            self.db.add(s[1])
            self.rows += 1
        elif k == 'del':
            if s[1] in self.db:
                self.db.remove(s[1])
                self.rows += 1
            else:
                self.complete(frames, '02000')
        elif k == 'set':
            self.s += s[1]
        elif k == 'count':
            self.s += str(len(self.db))
        elif k == 'sig':
            if completion(s[1]):
                self.complete(frames, s[1])
            else:
                raise Cond(s[1])
        elif k == 'diag':
            self.s += '(' + self.diag[-1] + ')'
        elif k == 'resignal':
            state = s[1] or self.diag[-1]
            if completion(state):
                self.complete(frames, state)
            else:
                raise Cond(state)
        elif k == 'open':
            if self.cur is not None:
                raise Cond('24000')
            self.cur = 2
            self.cur_id += 1
        elif k == 'fetch':
            if self.cur is None:
                raise Cond('24000')
            if self.cur == 0:
                self.complete(frames, '02000')
            else:
                self.cur -= 1
        elif k == 'close':
            if self.cur is None:
                raise Cond('24000')
            self.cur = None
        elif k == 'nested':
            if s[1] in self.db or s[2]:
                raise Cond('23505' if s[1] in self.db else '45000')
            self.db.add(s[1])
        elif k == 'div':
            raise Cond('22012')
        elif k in ('leave', 'iterate'):
            raise Jump(k, s[1])
        elif k == 'return':
            raise Return()
        elif k == 'if':
            self.stmts(s[2] if s[1] in self.db else s[3], frames)
        elif k == 'while':
            self.loop(s[1], [lambda: self.stmts(s[3], frames)] * s[2], frames)
        elif k == 'forseries':
            if 1 <= s[3] <= s[2]:
                raise Cond('22012')          # the first fetch gets all rows
            self.loop(s[1], [lambda: self.stmts(s[4], frames)] * s[2], frames)
        elif k == 'fortable':
            def one(n):
                self.s += str(n)
                self.stmts(s[2], frames)
            self.loop(s[1], [lambda n=n: one(n) for n in sorted(self.db)], frames)
        elif k == 'block':
            before = self.save()
            try:
                self.stmts(s[4], frames + [(s, True)])
            except Jump as j:
                if not (j.kind == 'leave' and j.target == s[1]):
                    raise
            except Undo as u:
                if u.block is not s:
                    raise
                self.restore(before)
                try:
                    self.action(u.handler[2], frames + [(s, False)], s, u.state)
                except Jump as j:
                    if not (j.kind == 'leave' and j.target == s[1]):
                        raise
        else:
            raise AssertionError(k)

    def run(self, prog):
        start = set(self.db)
        self.rows = 0
        try:
            self.stmt(prog, [])
        except Cond as e:
            self.db = start
            return e.state, None
        except Return:
            pass
        return '00000', self.s


def program(seed):
    g = Gen(random.Random(seed))
    b = g.block(g.r.randint(1, 4), [], 'l0', outermost=True)
    # variables live in an outer block that handles nothing
    script = 'main: BEGIN\n\tDECLARE s text DEFAULT \'\';\n\tDECLARE x int;\n\tDECLARE c CURSOR FOR SELECT g FROM generate_series(1, 2) g;\n' + text(b) + ';\n\tRETURN s;\nEND'
    outer = ('block', 'main', True, [], [b])
    return outer, script


def main():
    psql, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    wrap = len(sys.argv) > 4
    out = ['\\set QUIET on', '\\pset tuples_only on', '\\pset format unaligned', 'DROP TABLE IF EXISTS f;', 'CREATE TABLE f (n int PRIMARY KEY);',
           'SET transactional_writer.block_cache = 10;',
           'CREATE OR REPLACE FUNCTION wrap(b text) RETURNS text LANGUAGE plpgsql AS $w$ BEGIN RETURN (tw.atomic(b)).result #>> \'{}\'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $w$;',
           'CREATE OR REPLACE FUNCTION nested(k int, fails bool) RETURNS void LANGUAGE plpgsql AS $w$ BEGIN PERFORM tw.atomic($b$BEGIN DECLARE EXIT HANDLER FOR SQLSTATE \'22012\' SIGNAL SQLSTATE \'45000\'; INSERT INTO f VALUES (:k); IF :f THEN SELECT 1 / 0; END IF; END$b$, jsonb_build_object(\'k\', k, \'f\', fails)); END $w$;']
    want = []
    for i in range(count):
        prog, script = program(seed + i)
        m = Model()
        state, result = m.run(prog)
        if wrap:
            want.append((state if state != '00000' and state != '57014' else ('-' + result if result is not None else state), sorted(m.db), script))
        else:
            want.append((state if result is None else '-%s#%d' % (result, m.rows), sorted(m.db), script))
        out.append('TRUNCATE f; INSERT INTO f VALUES (1);')
        out.append('\\echo @@@ %d' % i)
        if wrap:
            out.append("SELECT CASE WHEN r = '57014' OR r ~ '^[0-9][0-9A-Z]{4}$' AND r IN ('24000','45000','45001','22012','23505','40001','57014') THEN r ELSE '-' || r END FROM wrap($psm$%s$psm$) r;" % script)
            out.append('\\echo :SQLSTATE')
        else:
            out.append("SELECT '-' || (result #>> '{}') || '#' || rows FROM tw.atomic($psm$%s$psm$);" % script)
            out.append('\\echo :SQLSTATE')
        out.append('BEGIN; COMMIT;')
        out.append("SELECT 'T' || coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM f;")
    r = subprocess.run([psql, '-Xq'], input='\n'.join(out), capture_output=True, text=True)
    got = r.stdout.split('@@@ ')[1:]
    bad = 0
    if 'leak' in r.stderr or 'still active' in r.stderr:
        print('leaks')
        bad = 1
    if len(got) != count:
        print('only %d of %d ran' % (len(got), count), r.stderr[-2000:])
        bad = 1
    if 'already a transaction' in r.stderr:
        print('a subtransaction was left behind')
        bad = 1
    stats = {}
    for i, g in enumerate(got):
        lines = g.split('\n')
        w, table, script = want[i]
        res = [l for l in lines[1:] if l.startswith('-') or (wrap and len(l) == 5 and not l.startswith('T') and l != '00000')]
        sq = [l for l in lines[1:] if len(l) == 5 and not l.startswith('T') and not l.startswith('-')]
        have = res[0] if res else sq[0]
        t = [l for l in lines if l.startswith('T')]
        stats[w if not w.startswith('-') else 'ok'] = stats.get(w if not w.startswith('-') else 'ok', 0) + 1
        if have != w or t != ['T' + ','.join(map(str, table))]:
            bad += 1
            if bad <= 3:
                print('seed %d: wanted %s %s, got %s %s\n%s' % (seed + i, w, table, have, t, script))
                print(g)
    print('%d programs, %d bad, %s' % (len(got), bad, stats))
    sys.exit(bad > 0)


main()
