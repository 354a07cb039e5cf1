# Defines how to run the real programs that java-tests/fetch downloads. Sourced by ./demo and java-tests/measure/harness.py.

program_names=(h2 clojure closure spark spark3)

# Prints the oldest JDK that a program runs on.
program_needs_jdk() {
    case "$1" in
        closure) echo 21 ;;
        spark) echo 17 ;;
        *) echo 11 ;;
    esac
}

# Sets the array `program_command` to the arguments after `java` and the JVM options.
# usage: program_arguments NAME full|short SCRATCH-FOLDER
# `short` does about a twentieth of the work.
program_arguments() {
    local name=$1 size=$2 scratch=$3 here jars
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    local cache=$here/.cache/programs script=$here/workloads/programs
    jars=$(printf '%s:' "$cache/$name"/*.jar)
    jars=${jars%:}
    case "$name" in
        h2)
            cp "$script/h2.sql" "$scratch/h2.sql"
            if [ "$size" = short ]; then
                sed -i 's/^SET @SALES = .*/SET @SALES = 20000;/; s/<= 8000/<= 400/' "$scratch/h2.sql"
            fi
            program_command=(-Xmx1g -cp "$jars" org.h2.tools.RunScript -url jdbc:h2:mem:demo -user sa
                -script "$scratch/h2.sql" -showResults)
            ;;
        clojure)
            local rounds=56
            [ "$size" = full ] || rounds=2
            program_command=(-Xmx1g -cp "$jars" clojure.main "$script/words.clj" "$rounds")
            ;;
        closure)
            local input=$cache/closure/input.js
            if [ "$size" = short ]; then
                # A smaller input of the same kind: one small function, many times.
                input=$scratch/input.js
                local i
                for i in $(seq 1 2000); do
                    echo "function f$i(a, b) { let c = a * $i; for (let i = 0; i < b; i++) { c += i % 7; } return c; } f$i($i, 9);"
                done >"$input"
            fi
            program_command=(-Xmx2g -jar "$cache/closure/compiler.jar" -O SIMPLE --js "$input"
                --js_output_file "$scratch/output.js")
            ;;
        spark | spark3)
            cp "$script/spark.sql" "$scratch/spark.sql"
            if [ "$size" = short ]; then
                sed -i 's/range(0, 1000000,/range(0, 100000,/' "$scratch/spark.sql"
            fi
            # As Spark's own start script opens them.
            local opened=() package
            for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util \
                java.util.concurrent java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action \
                sun.util.calendar; do
                opened+=(--add-opens "java.base/$package=ALL-UNNAMED")
            done
            program_command=(-Xmx2g "${opened[@]}" -Djdk.reflect.useDirectMethodHandle=false
                -Dio.netty.tryReflectionSetAccessible=true "-Dderby.system.home=$scratch" -cp "$cache/$name/*"
                org.apache.spark.deploy.SparkSubmit --master "local[2]" --conf spark.ui.enabled=false
                --conf "spark.sql.warehouse.dir=$scratch/warehouse" --conf spark.sql.catalogImplementation=in-memory
                --class org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver spark-internal -f "$scratch/spark.sql")
            ;;
        *)
            echo "no program '$name' (known: ${program_names[*]})" >&2
            return 2
            ;;
    esac
}
