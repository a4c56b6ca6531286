"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates it."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("cents", models.IntegerField()),
                ("email", models.TextField()),
                ("has_receipt", models.BooleanField(default=False)),
            ],
        ),
    ]
